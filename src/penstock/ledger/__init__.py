"""The pipeline's ledger: an append-only log with one conditional operation, in SQLite, a database, a directory or a store."""
