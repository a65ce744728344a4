"""The Parquet sink: files in any number of accounts, staged invisibly, decided once, then moved into place."""

from penstock.sink.parquet.directory import directory_account
from penstock.sink.parquet.object import object_account
from penstock.sink.parquet.sink import ParquetSink

__all__ = ["ParquetSink", "directory_account", "object_account"]
