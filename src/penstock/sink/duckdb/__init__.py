"""Delivery into a table of a DuckDB file: exactly once, by one transaction for rows and marker."""
