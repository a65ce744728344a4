"""Sinks of tables in databases, made from their settings. Nothing is connected or written yet."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from penstock.core.model import SinkName
from penstock.protocols import Sink
from penstock.spec.many_tables import FillsManyTables
from penstock.spec.selection import Compares, TellsBatches, UpsertsNewest
from penstock.spec.table import DBAPI, Cassandra, DuckDB, MySQL, PostgreSQL, Redshift, ServedTable, SQLite, SQLServer, Table

if TYPE_CHECKING:
    from penstock.sink.spool import SpoolRoot
    from penstock.sink.table.sink import TableSinkArguments
    from penstock.sink.table.sql_sink import SqlSink


def table_sink(name: SinkName, settings: Table, *, spool: "SpoolRoot") -> Sink:
    """Return a sink that fills a table of a database. Raises ImportError where its driver is not installed."""
    return _BUILDERS[type(settings)](settings, _filling(name, settings, spool))


def _filling(name: SinkName, settings: Table, spool: "SpoolRoot") -> "TableSinkArguments":
    filling: TableSinkArguments = {
        "name": name,
        "table": settings.table,
        "spool": spool,
        "write": settings.write,
        "key": settings.key,
        "create": settings.create,
        "schema_changes": settings.schema_changes,
        "deletes": settings.deletes is not None,
    }
    if isinstance(settings, UpsertsNewest):
        filling["sequence_by"] = settings.sequence_by
    if isinstance(settings, Compares):
        filling["update_when"], filling["history"] = settings.update_when, settings.history
    if isinstance(settings, TellsBatches):
        filling["batch_column"] = settings.batch_column
    if isinstance(settings, ServedTable) and settings.merge is not None:
        filling["merge"] = settings.merge.text()
    return filling


def _one_or_many(kind: "type[SqlSink[Any, Any]]", settings: FillsManyTables, **given: Any) -> Sink:
    """Return a sink of the dialect into one table, or into many."""
    names = settings.table_names
    if names is None:
        return kind(**given)
    from penstock.sink.many.database import many_tables

    aside = getattr(settings, "invalid_rows", None) == "quarantine"
    prefix, unrouted = settings.template_prefix, settings.unrouted
    return many_tables(kind, names, prefix=prefix, unrouted=unrouted, puts_invalid_aside=aside, **given)


def _sqlite(settings: SQLite, filling: "TableSinkArguments") -> Sink:
    from penstock.sink.sqlite import SqliteSink

    return _one_or_many(SqliteSink, settings, path=str(settings.file), **filling)


def _duckdb(settings: DuckDB, filling: "TableSinkArguments") -> Sink:
    from penstock.sink.duckdb.sink import DuckdbSink

    return _one_or_many(DuckdbSink, settings, path=str(settings.file), **filling)


def _postgres(settings: PostgreSQL, filling: "TableSinkArguments") -> Sink:
    from penstock.sink.postgres.sink import PostgresSink

    return _one_or_many(PostgresSink, settings, url=settings.url, **filling)


def _mysql(settings: MySQL, filling: "TableSinkArguments") -> Sink:
    from penstock.sink.mysql.sink import MysqlSink

    return _one_or_many(MysqlSink, settings, url=settings.url, **filling)


def _redshift(settings: Redshift, filling: "TableSinkArguments") -> Sink:
    from penstock.sink.redshift.sink import RedshiftSink

    return _one_or_many(RedshiftSink, settings, url=settings.url, **filling)


def _sqlserver(settings: SQLServer, filling: "TableSinkArguments") -> Sink:
    from penstock.sink.sqlserver.sink import SqlserverSink

    return _one_or_many(SqlserverSink, settings, url=settings.url, **filling)


def _cassandra(settings: Cassandra, filling: "TableSinkArguments") -> Sink:
    from penstock.sink.cassandra.sink import CassandraSink

    return CassandraSink(
        url=settings.url,
        partition_by=settings.partition_by,
        wait_s=settings.wait / 1000,
        **filling,
    )


def _dbapi(settings: DBAPI, filling: "TableSinkArguments") -> Sink:
    from penstock.sink.dbapi.sink import DbapiSink

    return DbapiSink(
        driver=settings.driver,
        connect=settings.connect,
        columns=settings.columns,
        longest=settings.longest,
        **filling,
    )


_BUILDERS: Mapping[type, Callable[[Any, "TableSinkArguments"], Sink]] = {
    SQLite: _sqlite,
    DuckDB: _duckdb,
    PostgreSQL: _postgres,
    MySQL: _mysql,
    Redshift: _redshift,
    SQLServer: _sqlserver,
    Cassandra: _cassandra,
    DBAPI: _dbapi,
}
