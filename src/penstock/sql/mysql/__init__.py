"""MySQL and MariaDB themselves: what a sink and a ledger in them have in common."""
