"""Sinks into many tables, which the rows name: `table: "{region}_orders"`. Each table is filled by a sink of its own.

A database publishes all tables of a batch in one transaction; Delta and Iceberg tables are published one after the other.
"""
