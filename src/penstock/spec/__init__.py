"""Typed, validated, frozen settings of the pipeline file. The same classes are the Python interface."""

from penstock.spec.kafka import Kafka
from penstock.spec.load import load
from penstock.spec.location import Account, Route
from penstock.spec.pipeline import DeliverySettings, PipelineSettings, Spark, Transform, Trigger
from penstock.spec.sink import Console, Memory, Parquet, PythonSink, Sink
from penstock.spec.source import Source, Watermark
from penstock.spec.table import DBAPI, Cassandra, DuckDB, MySQL, PostgreSQL, Redshift, ServedTable, SQLite, SQLServer, Table
from penstock.support.secret import redact, scrub

__all__ = [
    "DBAPI",
    "Account",
    "Cassandra",
    "Console",
    "DeliverySettings",
    "DuckDB",
    "Kafka",
    "Memory",
    "MySQL",
    "Parquet",
    "PipelineSettings",
    "PostgreSQL",
    "PythonSink",
    "Redshift",
    "Route",
    "SQLServer",
    "SQLite",
    "ServedTable",
    "Sink",
    "Source",
    "Spark",
    "Table",
    "Transform",
    "Trigger",
    "Watermark",
    "load",
    "redact",
    "scrub",
]
