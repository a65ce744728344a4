"""Delivery into a table of an SQLite file: exactly once, by one transaction for rows and marker."""

from penstock.sink.sqlite.sink import SqliteSink

__all__ = ["SqliteSink"]
