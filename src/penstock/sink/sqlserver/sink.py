"""The sqlserver sink: rows and marker in one transaction. Not run against a live server yet: see docs/howto/sqlserver.md."""

from contextlib import closing
from typing import TYPE_CHECKING

import pytds

from penstock.core.faults import FaultPoint
from penstock.core.model import PipelineName, Publication, Totals
from penstock.sink.sqlserver import statements as sql
from penstock.sink.sqlserver.connection import Connect, Connection
from penstock.sink.sqlserver.database import Database
from penstock.sink.sqlserver.errors import connection_lost
from penstock.sink.sqlserver.load import load
from penstock.sink.sqlserver.marker_store import SqlserverMarkerStore
from penstock.sink.sqlserver.names import split_name
from penstock.sink.sqlserver.preparation import (
    content_of,
    name_markers,
    prepare_table,
    readable_marker_store,
    require_schema_accepted,
)
from penstock.sink.sqlserver.row_validator import RowValidator
from penstock.sink.sqlserver.table_schema import lengths, require_fit, statements_of, table_schema_of
from penstock.sink.table.publication import Loaded
from penstock.sink.table.server import ServerSink
from penstock.sink.table.session import LOCK_TIMEOUT_S
from penstock.sink.table.sink import TableSinkArguments
from penstock.sink.table.target import Target
from penstock.spark.schema import arrow_schema

if TYPE_CHECKING:
    from typing_extensions import Unpack

BEGIN = FaultPoint("sqlserver.begin", "A transaction is opened on the server.")
COMMIT = FaultPoint("sqlserver.commit", "Rows and marker are committed.")
PREPARE = FaultPoint("sqlserver.prepare", "Table and marker are created and committed.")


class SqlserverSink(ServerSink[Connection]):
    """Delivers into one table of a database of SQL Server or Azure SQL, as described in `TableSink`.

    Waits `lock_timeout_s` for another session's lock, then raises Retryable. `connect` opens a session, like `pytds.connect`.
    """

    _database: Database

    def __init__(
        self,
        *,
        url: str,
        lock_timeout_s: float = LOCK_TIMEOUT_S,
        connect: Connect = pytds.connect,
        **filling: "Unpack[TableSinkArguments]",
    ) -> None:
        super().__init__(**filling)
        self._schema, self._table = split_name(self._target.table)
        self._database = Database(url, application=f"penstock:{self._name}", lock_timeout_s=lock_timeout_s, connect=connect)

    # --- what is SQL Server's own

    def _described(self, rows: str) -> str:
        return (
            f"one transaction on one connection: bulk load into a temporary table, {rows} table {self._target.table} of "
            f"{self._database.place}"
        )

    def _existing_table(self, connection: Connection) -> tuple[str, bool] | None:
        table_schema = table_schema_of(connection, self._schema, self._table)
        if table_schema is None:
            return None
        return f"{table_schema.kind} {self._target.table} with {len(table_schema.columns)} columns", table_schema.kind == "table"

    def _prepare_table(self, connection: Connection, pipeline: PipelineName, schema: str) -> RowValidator:
        with PREPARE.around(error=connection_lost, lost=connection_lost):
            return prepare_table(
                connection,
                database=self._database,
                pipeline=pipeline,
                sink=self._name,
                schema=schema,
                target=self._target,
                create=self._create,
            )

    def _require_schema_accepted(self, connection: Connection, pipeline: PipelineName, schema: str) -> None:
        require_schema_accepted(
            connection, pipeline=pipeline, sink=self._name, schema=schema, target=self._target, create=self._create
        )

    def _marker_store(self, connection: Connection) -> SqlserverMarkerStore:
        return SqlserverMarkerStore(connection, self._schema, locking=True)

    def _readable_marker_store(self, connection: Connection) -> SqlserverMarkerStore | None:
        return readable_marker_store(connection, self._schema)

    def _name_markers(self, connection: Connection) -> None:
        name_markers(connection, self._schema)

    def _begin(self, connection: Connection) -> None:
        with BEGIN.around(error=connection_lost, lost=connection_lost):
            connection.execute(sql.BEGIN)

    def _load(self, connection: Connection, publication: Publication, target: Target) -> Loaded:
        """Check the table again, which nobody can alter from here to the end of the transaction, then load."""
        schema = arrow_schema(publication.schema)
        connection.execute(statements_of(schema, target).hold())
        table_schema = table_schema_of(connection, self._schema, self._table)
        assert table_schema is not None, "it is held"
        require_fit(table_schema, schema, target, decided=True)
        with closing(self._spool.read(publication.staged, pipeline=publication.pipeline)) as rows:
            return load(connection, lengths(table_schema, schema, target).required(rows), schema, table_schema, target)

    def _commit(self, connection: Connection) -> None:
        """Commit. After an error the outcome is unknown: the next try locks and reads the marker on a new connection."""
        with self._database.unknown_if_cut(self._target.table), COMMIT.around(error=connection_lost, lost=connection_lost):
            self._database.commit(connection)

    def _content(self, connection: Connection, schema: str) -> Totals:
        return content_of(connection, arrow_schema(schema), self._target)
