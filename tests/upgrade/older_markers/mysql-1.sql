CREATE TABLE IF NOT EXISTS penstock_marker (
    pipeline varchar(255) NOT NULL, sink varchar(255) NOT NULL, table_name varchar(255) NOT NULL, `write` varchar(32) NOT NULL,
    format_version int NOT NULL,
    position bigint NOT NULL, generation bigint, query_id varchar(255), batch_id bigint, offsets longtext, `schema` longtext,
    rows_decided bigint NOT NULL, digest_decided char(16) NOT NULL,
    rows_before bigint NOT NULL, digest_before char(16) NOT NULL,
    rows_after bigint NOT NULL, digest_after char(16) NOT NULL,
    published_at datetime(6) NOT NULL,
    PRIMARY KEY (pipeline, sink)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin
