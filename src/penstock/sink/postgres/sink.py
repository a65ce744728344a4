"""The postgres sink: rows and marker in one transaction, which is the ledger's if both are in one database."""

import psycopg
import pyarrow as pa

from penstock.core.faults import FaultPoint
from penstock.sink.postgres import statements as sql
from penstock.sink.postgres import table_schema as tables
from penstock.sink.postgres.load import load, read_there, rehearse
from penstock.sink.postgres.members import require_none_filled
from penstock.sink.postgres.statements import SYNTAX
from penstock.sink.postgres.table_schema import TABLES, TableSchema
from penstock.sink.table.dialect import ErrorCodes, FaultPoints
from penstock.sink.table.marker_store import BATCH_TABLE, MARKER_TABLE
from penstock.sink.table.preparation import require_unfilled
from penstock.sink.table.served import ServedSink
from penstock.sql.postgres.database import Connection, Database, require_schema
from penstock.sql.postgres.errors import FORBIDDEN, code_of, connection_lost, reason_of
from penstock.sql.postgres.names import DEFAULT_SCHEMA
from penstock.sql.postgres.statements import TAKE_LOCK
from penstock.sql.table_name import in_double_quotes

PREPARE = FaultPoint("postgres.prepare", "Table and marker are created and committed.")
BEGIN = FaultPoint("postgres.begin", "A transaction is opened on the server.")
FENCE = FaultPoint("postgres.fence", "The marker's row is locked and read: nobody else publishes until this transaction ends.")
MARK = FaultPoint("postgres.mark", "The marker is set to the batch, in the transaction of its rows.")
COMMIT = FaultPoint("postgres.commit", "Rows and marker are committed.")


class PostgresSink(ServedSink[Connection, TableSchema]):
    """A `TableSink` that delivers into one table of a PostgreSQL database.

    Waits `lock_timeout_s` for another session's lock, then raises Retryable.
    """

    _database: Database
    _database_type = Database
    _tables = TABLES
    _widens = True
    _compares = True
    _points = FaultPoints.of(
        connection_lost, prepare=PREPARE.around, begin=BEGIN.around, fence=FENCE.around, mark=MARK.around, commit=COMMIT.around
    )
    _codes = ErrorCodes(code_of=code_of, reason_of=reason_of, forbidden=frozenset({FORBIDDEN}))
    _own_statements = sql.OwnStatements
    _write = staticmethod(load)
    _read_there = staticmethod(read_there)
    _joins = psycopg.Connection
    _syntax = SYNTAX

    def _described(self, rows: str) -> str:
        return (
            "one transaction on one connection: binary COPY, through a temporary table if there is a key or a column has "
            f"another type, {rows} "
            f"table {self._target.table} of {self._database.place}; that of the ledger if it has the same URL"
        )

    # --- PostgreSQL's way of preparing: all of it in one transaction

    def _open_preparation(self, connection: Connection) -> None:
        self._database.begin(connection)
        connection.execute(TAKE_LOCK)
        self._require_place(connection)
        for table, statements in self._own.creates.items():
            if self._table_schema(connection, table) is None:
                for statement in statements:
                    connection.execute(statement)

    def _require_place(self, connection: Connection) -> None:
        """Raise Refused if a table of Penstock could lose rows: without a marker, the newest batch is published again."""
        require_schema(connection, self._schema)
        for table in (MARKER_TABLE, BATCH_TABLE):
            table_schema = self._table_schema(connection, table)
            if table_schema is not None:
                tables.require_lasting(
                    table_schema, table if self._schema == DEFAULT_SCHEMA else in_double_quotes(self._schema, table)
                )

    def _require_unfilled(self, connection: Connection, table_schema: TableSchema | None) -> None:
        for (schema,) in connection.execute(sql.DBAPI_SCHEMAS).fetchall():
            require_unfilled(connection.execute(sql.owners_of_dbapi(schema)).fetchall(), self._target.table, schema=self._schema)
        if table_schema is not None:
            require_none_filled(connection, table_schema.oid, self._target.table)

    def _dry_run(self, connection: Connection, rows: "pa.Schema") -> None:
        rehearse(connection, rows, self._target)

    def _dry_run_unprepared(self, connection: Connection, table_schema: TableSchema | None, rows: "pa.Schema") -> None:
        """Rehearse in a transaction that is never committed, creating a missing table in it first."""
        if self._target.merge is None:
            return
        self._database.commit(connection)  # ends the read-only transaction
        self._database.begin(connection)
        if table_schema is None:
            TABLES.create_table(connection, rows, self._target)
        rehearse(connection, rows, self._target)

    def _add_ledger_id(self, connection: Connection) -> None:
        if self._lacks_ledger_id(connection):
            self._database.begin(connection)
            connection.execute(TAKE_LOCK)
            super()._add_ledger_id(connection)
            self._database.commit(connection)
