CREATE TABLE penstock_marker (
    pipeline text NOT NULL, sink text NOT NULL, table_name text NOT NULL, write text NOT NULL,
    format_version integer NOT NULL,
    position bigint NOT NULL, generation bigint, query_id text, batch_id bigint, offsets text, schema text,
    rows_decided bigint NOT NULL, digest_decided text NOT NULL,
    rows_before bigint NOT NULL, digest_before text NOT NULL,
    rows_after bigint NOT NULL, digest_after text NOT NULL,
    published_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (pipeline, sink)
)
