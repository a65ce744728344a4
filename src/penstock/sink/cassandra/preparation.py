"""Prepares a Cassandra keyspace: creates Penstock's own tables, and looks whether the user may read and write.

Each statement stands for itself. A run that ends in between leaves an empty table, or one without a marker, to the next one.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
from cassandra import InvalidRequest, Unauthorized

from penstock.errors import Refused
from penstock.sink.cassandra import statements as sql
from penstock.sink.cassandra.database import Connection
from penstock.sink.cassandra.errors import reason_of
from penstock.sink.cassandra.table_schema import table_schema_of
from penstock.sink.cassandra.target import CassandraTarget


def create_own_tables(connection: Connection) -> None:
    """Create Penstock's own tables where they are missing. Raises Refused."""
    for table, statement in ((sql.MARKER_TABLE, sql.CREATE_MARKER), (sql.BATCH_TABLE, sql.CREATE_BATCH)):
        if table_schema_of(connection, table) is None:
            create(connection, statement)


def name_markers(connection: Connection) -> None:
    """Add the column that the markers of an older Penstock lack, unless another driver does so at the same time."""
    if _are_markers_named(connection):
        return
    try:
        with _granted("ALTER", sql.MARKER_TABLE):
            connection.define(sql.NAME_MARKERS)
    except InvalidRequest:
        if not _are_markers_named(connection):
            raise


def _are_markers_named(connection: Connection) -> bool:
    table_schema = table_schema_of(connection, sql.MARKER_TABLE)
    return table_schema is None or table_schema.is_named


def require_allowed(connection: Connection, rows: "pa.Schema", target: CassandraTarget) -> None:
    """Raise Refused where the user lacks a right. A row without a key tests writing: it is refused after the right was found."""
    statements = target.statements(rows)
    with _granted("SELECT", target.table):
        connection.execute(statements.look)
    with _granted("MODIFY", target.table):
        try:
            connection.define(statements.insert_keyless)
        except InvalidRequest:
            return
    raise AssertionError("a row without a key was written")


@contextmanager
def _granted(right: str, table: str) -> Iterator[None]:
    try:
        yield
    except Unauthorized as cause:
        raise Refused(
            f"The user lacks {right} on {table}: {reason_of(cause)}.", remedy=f"GRANT {right} ON {table} to it."
        ) from cause


def create(connection: Connection, statement: str) -> None:
    """Run a statement that creates a table. Raises Refused."""
    with _granted("CREATE", f"KEYSPACE {connection.keyspace}"):
        connection.define(statement)
