CREATE TABLE penstock_dbapi_marker (
    pipeline VARCHAR(100) NOT NULL, sink VARCHAR(100) NOT NULL, table_name VARCHAR(500) NOT NULL, way VARCHAR(20) NOT NULL,
    format_version INTEGER NOT NULL,
    at_position BIGINT NOT NULL, generation BIGINT, query_id VARCHAR(100), batch_id BIGINT, offsets TEXT, row_schema TEXT,
    rows_decided BIGINT NOT NULL, digest_decided VARCHAR(16) NOT NULL,
    rows_before BIGINT NOT NULL, digest_before VARCHAR(16) NOT NULL,
    rows_after BIGINT NOT NULL, digest_after VARCHAR(16) NOT NULL,
    turns BIGINT NOT NULL, trial TEXT,
    PRIMARY KEY (pipeline, sink)
)
