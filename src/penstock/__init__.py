"""Exactly-once delivery from PySpark Structured Streaming into any number of unlike sinks, with proof."""

import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Final

__version__ = "0.1.0"

_MODULES: Final = {
    "penstock.errors": "PenstockError",
    "penstock.core.model": "Guarantee",
    "penstock.observe.progress": "BatchProgress",
    "penstock.run.chain.opening": "register_source",
    "penstock.run.delivery": "Delivery",
    "penstock.run.pipeline": "Pipeline read",
    "penstock.run.query": "Query",
    "penstock.run.reading": "Reading",
    "penstock.sink.memory": "clear_memory_table memory_table",
    "penstock.sink.own": "OwnBatch OwnSink from_json_lines require_json to_json_lines",
    "penstock.spec.location": "Account Quarantine Route",
    "penstock.spec.delta": "Delta",
    "penstock.spec.export": "EventTarget OpenLineage OpenTelemetry",
    "penstock.spec.http": "HTTP",
    "penstock.spec.iceberg": "Iceberg",
    "penstock.spec.kafka": "Kafka RecordValue",
    "penstock.spec.listening": "MetricsEndpoint",
    "penstock.spec.many_tables": "Tables",
    "penstock.spec.pipeline": "PipelineSettings Spark Transform Trigger",
    "penstock.spec.registry": "Coded Decode DecodedValue Encode Registry",
    "penstock.spec.rule": "Rule",
    "penstock.spec.sink": "Console Memory Parquet PythonSink",
    "penstock.spec.source": "Source Watermark",
    "penstock.spec.state_limits": "StateLimits",
    "penstock.spec.merge": "Merge",
    "penstock.spec.table": "Cassandra DBAPI DuckDB MySQL PostgreSQL Redshift SQLServer SQLite",
}
_HOMES: Final = {name: module for module, names in _MODULES.items() for name in names.split()}
_RENAMED: Final = {
    "Dbapi": "DBAPI",
    "Duckdb": "DuckDB",
    "Postgres": "PostgreSQL",
    "SqlServer": "SQLServer",
    "Sqlite": "SQLite",
}

if TYPE_CHECKING:
    from penstock.core.model import Guarantee
    from penstock.errors import PenstockError
    from penstock.observe.progress import BatchProgress
    from penstock.run.chain.opening import register_source
    from penstock.run.delivery import Delivery
    from penstock.run.pipeline import Pipeline, read
    from penstock.run.query import Query
    from penstock.run.reading import Reading
    from penstock.sink.memory import clear_memory_table, memory_table
    from penstock.sink.own import OwnBatch, OwnSink, from_json_lines, require_json, to_json_lines
    from penstock.spec.delta import Delta
    from penstock.spec.export import EventTarget, OpenLineage, OpenTelemetry
    from penstock.spec.http import HTTP
    from penstock.spec.iceberg import Iceberg
    from penstock.spec.kafka import Kafka, RecordValue
    from penstock.spec.listening import MetricsEndpoint
    from penstock.spec.location import Account, Quarantine, Route
    from penstock.spec.many_tables import Tables
    from penstock.spec.merge import Merge
    from penstock.spec.pipeline import PipelineSettings, Spark, Transform, Trigger
    from penstock.spec.registry import Coded, Decode, DecodedValue, Encode, Registry
    from penstock.spec.rule import Rule
    from penstock.spec.sink import Console, Memory, Parquet, PythonSink
    from penstock.spec.source import Source, Watermark
    from penstock.spec.state_limits import StateLimits
    from penstock.spec.table import DBAPI, Cassandra, DuckDB, MySQL, PostgreSQL, Redshift, SQLite, SQLServer

__all__ = [
    "DBAPI",
    "HTTP",
    "Account",
    "BatchProgress",
    "Cassandra",
    "Coded",
    "Console",
    "Decode",
    "DecodedValue",
    "Delivery",
    "Delta",
    "DuckDB",
    "Encode",
    "EventTarget",
    "Guarantee",
    "Iceberg",
    "Kafka",
    "Memory",
    "Merge",
    "MetricsEndpoint",
    "MySQL",
    "OpenLineage",
    "OpenTelemetry",
    "OwnBatch",
    "OwnSink",
    "Parquet",
    "PenstockError",
    "Pipeline",
    "PipelineSettings",
    "PostgreSQL",
    "PythonSink",
    "Quarantine",
    "Query",
    "Reading",
    "RecordValue",
    "Redshift",
    "Registry",
    "Route",
    "Rule",
    "SQLServer",
    "SQLite",
    "Source",
    "Spark",
    "StateLimits",
    "Tables",
    "Transform",
    "Trigger",
    "Watermark",
    "__version__",
    "clear_memory_table",
    "from_json_lines",
    "memory_table",
    "read",
    "register_source",
    "require_json",
    "to_json_lines",
]

if not TYPE_CHECKING:  # else a type checker would take every name for one of ours

    def __getattr__(name: str) -> object:
        """Import a public name when it is first used: the command line and the tasks need few of them."""
        if name in _RENAMED:
            warnings.warn(f"penstock.{name} is now penstock.{_RENAMED[name]}", DeprecationWarning, stacklevel=2)
        public = _RENAMED.get(name, name)
        if public not in _HOMES:
            raise AttributeError(f"module 'penstock' has no attribute {name!r}")
        return getattr(import_module(_HOMES[public]), public)

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
