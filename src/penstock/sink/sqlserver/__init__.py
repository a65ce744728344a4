"""Delivery into a table of SQL Server or Azure SQL: exactly once, by one transaction for rows and marker.

The sink is in `penstock.sink.sqlserver.sink` and not imported here: tasks check rows without a client of SQL Server.
"""
