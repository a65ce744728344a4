"""Delivery into a table of MySQL or MariaDB: exactly once, by one transaction for rows and marker.

The sink is in `penstock.sink.mysql.sink`, and not imported here: tasks check rows without a client of MySQL.
"""
