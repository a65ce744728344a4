"""Exactly-once delivery into a table of an SQLite file: one transaction writes rows and marker."""

from penstock.sink.sqlite.sink import SqliteSink

__all__ = ["SqliteSink"]
