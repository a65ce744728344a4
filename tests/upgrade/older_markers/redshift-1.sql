CREATE TABLE penstock_marker (
    pipeline varchar(255) NOT NULL, sink varchar(255) NOT NULL, table_name varchar(600) NOT NULL, write varchar(32) NOT NULL,
    format_version integer NOT NULL,
    position bigint NOT NULL, generation bigint, query_id varchar(255), batch_id bigint, offsets varchar(65535),
    schema varchar(65535),
    rows_decided bigint NOT NULL, digest_decided char(16) NOT NULL,
    rows_before bigint NOT NULL, digest_before char(16) NOT NULL,
    rows_after bigint NOT NULL, digest_after char(16) NOT NULL,
    published_at timestamp NOT NULL
)
