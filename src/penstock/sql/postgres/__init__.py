"""PostgreSQL itself: what a sink and a ledger in it have in common. Needs the extra `postgres`; imported by whoever uses it."""
