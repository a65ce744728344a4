"""Exactly-once delivery into a table of PostgreSQL: one transaction writes rows and marker.

The sink is in `penstock.sink.postgres.sink` and not imported here, so that tasks can check rows without a PostgreSQL client.
"""
