"""Exactly-once delivery from PySpark Structured Streaming into any number of unlike sinks, with proof."""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

_HOMES = {
    "Cassandra": "penstock.spec.table",
    "Console": "penstock.spec.sink",
    "Dbapi": "penstock.spec.table",
    "Delivery": "penstock.run.delivery",
    "Kafka": "penstock.spec.kafka",
    "Memory": "penstock.spec.sink",
    "Duckdb": "penstock.spec.table",
    "MySQL": "penstock.spec.table",
    "OwnBatch": "penstock.sink.own",
    "OwnSink": "penstock.sink.own",
    "Parquet": "penstock.spec.sink",
    "PenstockError": "penstock.errors",
    "Pipeline": "penstock.run.pipeline",
    "Postgres": "penstock.spec.table",
    "PythonSink": "penstock.spec.sink",
    "Query": "penstock.run.query",
    "Reading": "penstock.run.reading",
    "Redshift": "penstock.spec.table",
    "SqlServer": "penstock.spec.table",
    "Sqlite": "penstock.spec.table",
    "read": "penstock.run.reading",
}

if TYPE_CHECKING:
    from penstock.errors import PenstockError
    from penstock.run.delivery import Delivery
    from penstock.run.pipeline import Pipeline
    from penstock.run.query import Query
    from penstock.run.reading import Reading, read
    from penstock.sink.own import OwnBatch, OwnSink
    from penstock.spec.kafka import Kafka
    from penstock.spec.sink import Console, Memory, Parquet, PythonSink
    from penstock.spec.table import Cassandra, Dbapi, Duckdb, MySQL, Postgres, Redshift, Sqlite, SqlServer

__all__ = [
    "Cassandra",
    "Console",
    "Dbapi",
    "Delivery",
    "Duckdb",
    "Kafka",
    "Memory",
    "MySQL",
    "OwnBatch",
    "OwnSink",
    "Parquet",
    "PenstockError",
    "Pipeline",
    "Postgres",
    "PythonSink",
    "Query",
    "Reading",
    "Redshift",
    "SqlServer",
    "Sqlite",
    "__version__",
    "read",
]


def __getattr__(name: str) -> object:
    """Public names, imported when they are first used: the command line and the tasks need few of them."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'penstock' has no attribute {name!r}")
    return getattr(import_module(home), name)
