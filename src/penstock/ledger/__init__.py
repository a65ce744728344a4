"""The pipeline's ledger: one append-only log with one conditional operation, in an SQLite file or in a store of keys."""
