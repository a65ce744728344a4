"""Delivery into a table of PostgreSQL: exactly once, by one transaction for rows and marker.

The sink is in `penstock.sink.postgres.sink`, and not imported here: tasks check rows without a client of PostgreSQL.
"""
