"""Access to PostgreSQL, shared by sink and ledger. Needs the extra `postgres`, so only users of this package import it."""
