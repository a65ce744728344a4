"""Exactly-once delivery into a table of MySQL or MariaDB: one transaction writes rows and marker.

The sink is in `penstock.sink.mysql.sink` and not imported here, so that tasks can check rows without a MySQL client.
"""
