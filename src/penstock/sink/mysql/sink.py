"""The mysql sink: rows and marker in one transaction, which is the ledger's if both are in one database."""

from contextlib import AbstractContextManager

import pyarrow as pa

from penstock.core.faults import FaultPoint
from penstock.errors import Refused
from penstock.sink.mysql import statements as sql
from penstock.sink.mysql.load import read_there, rehearse, rehearse_merge, write
from penstock.sink.mysql.statements import SYNTAX
from penstock.sink.mysql.table_schema import TABLES, TableSchema
from penstock.sink.table.dialect import ErrorCodes, FaultPoints
from penstock.sink.table.marker import MarkerStore
from penstock.sink.table.marker_store import DBAPI_MARKER_TABLE
from penstock.sink.table.preparation import require_unfilled
from penstock.sink.table.served import ServedSink
from penstock.sql.mysql.catalog import ENGINE
from penstock.sql.mysql.connection import Connection
from penstock.sql.mysql.database import Database, one_at_a_time
from penstock.sql.mysql.errors import DENIED, code_of, connection_lost, reason_of, without_view
from penstock.sql.mysql.statements import COMMIT as END_SNAPSHOT

PREPARE = FaultPoint("mysql.prepare", "Table and marker are created and committed.")
BEGIN = FaultPoint("mysql.begin", "A transaction is opened on the server.")
FENCE = FaultPoint("mysql.fence", "The marker's row is locked and read: nobody else publishes until this transaction ends.")
MARK = FaultPoint("mysql.mark", "The marker is set to the batch, in the transaction of its rows.")
COMMIT = FaultPoint("mysql.commit", "Rows and marker are committed.")


class MysqlSink(ServedSink[Connection, TableSchema]):
    """A `TableSink` that delivers into one table of a MySQL or MariaDB database.

    Waits `lock_timeout_s` (whole seconds) for another session's lock, then raises Retryable.
    """

    _database: Database
    _database_type = Database
    _tables = TABLES
    _widens = True
    _compares = True
    _points = FaultPoints.of(
        connection_lost, prepare=PREPARE.around, begin=BEGIN.around, fence=FENCE.around, mark=MARK.around, commit=COMMIT.around
    )
    _codes = ErrorCodes(code_of=code_of, reason_of=reason_of, forbidden=DENIED)
    _own_statements = sql.OwnStatements
    _write = staticmethod(write)
    _read_there = staticmethod(read_there)
    _joins = Connection
    _syntax = SYNTAX

    def _described(self, rows: str) -> str:
        return (
            "one transaction on one connection: LOAD DATA LOCAL, or INSERT where the server has local_infile off, "
            f"through a temporary table unless LOAD appends, {rows} table {self._target.table} of {self._database.place}; "
            "that of the ledger if it has the same URL"
        )

    def _existing_table(self, connection: Connection) -> tuple[str, bool] | None:
        found = super()._existing_table(connection)
        if found is None or connection.server.loads:
            return found
        return f"{found[0]} (rows go there by INSERT, since the server has local_infile off)", found[1]

    # --- MySQL's way of preparing: it commits at every CREATE TABLE, so tables are created before the marker's transaction

    def _one_at_a_time(self, connection: Connection) -> AbstractContextManager[None]:
        return one_at_a_time(connection)

    def _open_preparation(self, connection: Connection) -> None:
        """Create Penstock's own tables. If a run ends before its marker is committed, the next one finds an empty table."""
        for table, create in self._own.creates.items():
            table_schema = self._table_schema(connection, table)
            if table_schema is None:
                connection.execute(create)
            elif table_schema.engine != ENGINE:
                raise Refused(
                    f"Table {table!r} is of the engine {table_schema.engine}, expected {ENGINE}.",
                    remedy=f"ALTER TABLE {table} ENGINE = {ENGINE}.",
                )
        if self._table_schema(connection, sql.OFFSETS_VIEW) is None:
            with without_view():
                connection.execute(sql.CREATE_OFFSETS)

    def _markers_before_creating(self, connection: Connection, _: MarkerStore) -> MarkerStore:
        return self._marker_store(connection, locking=False)

    def _begin_marking(self, connection: Connection) -> None:
        self._database.begin(connection)

    def _require_place(self, connection: Connection) -> None:
        connection.execute(END_SNAPSHOT)  # a read-only transaction cannot even EXPLAIN a write

    def _require_unfilled(self, connection: Connection, _: TableSchema | None) -> None:
        if self._table_schema(connection, DBAPI_MARKER_TABLE) is not None:
            require_unfilled(connection.execute(sql.OWNERS_OF_DBAPI).fetchall(), self._target.table)

    def _dry_run_staging(self, connection: Connection, rows: "pa.Schema") -> None:
        rehearse(connection, rows, self._target)

    def _dry_run(self, connection: Connection, rows: "pa.Schema") -> None:
        rehearse_merge(connection, rows, self._target)

    def _dry_run_unprepared(self, connection: Connection, table_schema: TableSchema | None, rows: "pa.Schema") -> None:
        rehearse(connection, rows, self._target)
        if table_schema is not None:
            rehearse_merge(connection, rows, self._target)

    def _add_ledger_id(self, connection: Connection) -> None:
        if self._lacks_ledger_id(connection):
            with self._one_at_a_time(connection):
                super()._add_ledger_id(connection)
