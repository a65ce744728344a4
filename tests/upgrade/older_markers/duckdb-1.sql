CREATE TABLE IF NOT EXISTS penstock_marker (
    pipeline VARCHAR NOT NULL, sink VARCHAR NOT NULL, table_name VARCHAR NOT NULL, write VARCHAR NOT NULL,
    format_version INTEGER NOT NULL,
    position BIGINT NOT NULL, generation BIGINT, query_id VARCHAR, batch_id BIGINT, offsets VARCHAR, schema VARCHAR,
    rows_decided BIGINT NOT NULL, digest_decided VARCHAR NOT NULL,
    rows_before BIGINT NOT NULL, digest_before VARCHAR NOT NULL,
    rows_after BIGINT NOT NULL, digest_after VARCHAR NOT NULL,
    published_at TIMESTAMPTZ NOT NULL DEFAULT now(),
    PRIMARY KEY (pipeline, sink)
)
