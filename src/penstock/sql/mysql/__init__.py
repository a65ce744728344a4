"""Access to MySQL and MariaDB, shared by sink and ledger."""
