CREATE TABLE IF NOT EXISTS main.penstock_marker (
    pipeline TEXT NOT NULL, sink TEXT NOT NULL, table_name TEXT NOT NULL, write TEXT NOT NULL,
    format_version INTEGER NOT NULL,
    position INTEGER NOT NULL, generation INTEGER, query_id TEXT, batch_id INTEGER, offsets TEXT, schema TEXT,
    rows_decided INTEGER NOT NULL, digest_decided TEXT NOT NULL,
    rows_before INTEGER NOT NULL, digest_before TEXT NOT NULL,
    rows_after INTEGER NOT NULL, digest_after TEXT NOT NULL,
    published_at TEXT NOT NULL,
    PRIMARY KEY (pipeline, sink)
) WITHOUT ROWID
