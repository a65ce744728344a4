"""Database URLs and table names, and what a sink and a ledger in the same database share."""
