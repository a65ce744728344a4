"""The sqlite sink: rows and marker in one transaction, which is the ledger's if both are in one file."""

import os
import sqlite3
from contextlib import AbstractContextManager, closing
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.core.faults import FaultPoint
from penstock.core.model import PipelineName, Publication, Published, Totals
from penstock.sink.spool.writer import RowCheck
from penstock.sink.sqlite import statements as sql
from penstock.sink.sqlite.database import Database, disk_error, plain_cursor
from penstock.sink.sqlite.load import load, scan
from penstock.sink.sqlite.row_validator import RowValidator
from penstock.sink.sqlite.statements import TableStatements
from penstock.sink.sqlite.table_schema import (
    TableSchema,
    create_statement,
    require_fit,
    require_storable,
    table_schema_of,
    with_row_numbers,
)
from penstock.sink.table.content import totals_of
from penstock.sink.table.file import BUSY_TIMEOUT_S, FileSink
from penstock.sink.table.marker_store import DBAPI_MARKER_TABLE, DatabaseMarkerStore
from penstock.sink.table.preparation import require_unfilled
from penstock.sink.table.publication import Loaded
from penstock.sink.table.sink import TableSinkArguments
from penstock.sink.table.target import Target, table_gone
from penstock.spark.schema import arrow_schema

if TYPE_CHECKING:
    from typing_extensions import Unpack

BEGIN = FaultPoint("sqlite.begin", "The write lock of the database is taken.")
MARK = FaultPoint("sqlite.mark", "The marker is set to the batch, in the transaction of its rows.")
COMMIT = FaultPoint("sqlite.commit", "Rows and marker are committed.")
PREPARE = FaultPoint("sqlite.prepare", "Table and marker are created and committed.")


class SqliteMarkerStore(DatabaseMarkerStore[str]):
    """A `DatabaseMarkerStore` in an SQLite file, whose write lock excludes other publishers."""

    def __init__(self, connection: sqlite3.Connection, *, named: bool = True) -> None:
        super().__init__(plain_cursor(connection).execute, sql.MARKER_STATEMENTS, locking=False, named=named)

    def _marking(self) -> AbstractContextManager[None]:
        return MARK.around(error=disk_error, lost=disk_error)


class SqliteSink(FileSink[sqlite3.Connection, TableSchema]):
    """A `TableSink` that delivers into one table of an SQLite file.

    Waits `busy_timeout_s` for another writer of the file, then raises Retryable.
    """

    def __init__(
        self, *, path: "str | os.PathLike[str]", busy_timeout_s: float = BUSY_TIMEOUT_S, **filling: "Unpack[TableSinkArguments]"
    ) -> None:
        self._database = Database(path, busy_timeout_s=busy_timeout_s)
        super().__init__(**filling)

    @property
    def home(self) -> str | None:
        """`sqlite:` and the file's real path, which is also the home of a `SqliteLedger` in that file."""
        return f"sqlite:{self._database.path}"

    def publish_within(self, transaction: object, publication: Publication) -> Published:
        """Publish in the ledger's transaction on the same file. If this raises, the ledger rolls back."""
        if not isinstance(transaction, sqlite3.Connection):
            raise TypeError(f"expected an sqlite3.Connection, found {type(transaction).__name__}")
        return self._publish_in_ledger(transaction, publication)

    # --- preparing

    def _described(self, rows: str) -> str:
        table = f"table {self._target.table} of {self._database.path}"
        return f"one transaction: {rows} {table}; the ledger's own if it is in the same file"

    def _existing_table(self, connection: sqlite3.Connection) -> tuple[str, bool] | None:
        table_schema = self._table_schema(connection)
        if table_schema is None:
            return None
        fits = table_schema.kind == "table" and os.access(self._database.path, os.W_OK)
        return f"{table_schema.kind} {self._target.table} with {len(table_schema.columns)} columns", fits

    def _name_markers(self, connection: sqlite3.Connection) -> None:
        connection.execute(sql.BEGIN)
        table_schema = table_schema_of(plain_cursor(connection), sql.MARKER_TABLE)
        if table_schema is not None and not table_schema.is_named:
            connection.execute(sql.ADD_LEDGER_ID)
        connection.execute(sql.COMMIT)

    def _prepare_table(self, connection: sqlite3.Connection, pipeline: PipelineName, schema: str) -> RowCheck:
        with PREPARE.around(error=disk_error, lost=disk_error):
            connection.execute(sql.BEGIN)
            connection.execute(sql.CREATE_MARKER_TABLE)
            connection.execute(sql.CREATE_BATCH_TABLE)
            row_validator = self._prepared(connection, pipeline, schema)
            connection.execute(sql.COMMIT)
        return row_validator

    def _table_schema(self, connection: sqlite3.Connection) -> TableSchema | None:
        return table_schema_of(plain_cursor(connection), self._target.table)

    def _require_storable(self, connection: sqlite3.Connection, rows: "pa.Schema") -> None:  # noqa: ARG002 - SQLite takes all types
        require_storable(rows, self._target.table, self._target.key)

    def _create_table(self, connection: sqlite3.Connection, rows: "pa.Schema") -> None:
        connection.execute(create_statement(rows, self._target.table, self._target.key))

    def _require_fit(self, connection: sqlite3.Connection, table_schema: TableSchema, rows: "pa.Schema") -> None:  # noqa: ARG002
        require_fit(table_schema, rows, self._target)

    def _require_unfilled(self, connection: sqlite3.Connection) -> None:
        if table_schema_of(plain_cursor(connection), DBAPI_MARKER_TABLE) is not None:
            require_unfilled(plain_cursor(connection).execute(sql.OWNERS_OF_DBAPI), self._target.table)

    def _row_check(self, table_schema: TableSchema, rows: "pa.Schema") -> RowValidator:
        reals = frozenset(field.name.lower() for field in rows if pa.types.is_floating(field.type))
        return RowValidator(
            sink=self._name,
            table=self._target.table,
            required=table_schema.required | {name.lower() for name in self._target.key},
            no_nan=reals if table_schema.strict else frozenset(),
        )

    # --- publishing

    def _marker_store(self, connection: sqlite3.Connection) -> SqliteMarkerStore:
        return SqliteMarkerStore(connection)

    def _readable_marker_store(self, connection: sqlite3.Connection) -> SqliteMarkerStore | None:
        table_schema = table_schema_of(plain_cursor(connection), sql.MARKER_TABLE)
        return None if table_schema is None else SqliteMarkerStore(connection, named=table_schema.is_named)

    def _begin(self, connection: sqlite3.Connection) -> None:
        with BEGIN.around(error=_locked, lost=_locked):
            connection.execute(sql.BEGIN)

    def _load(self, connection: sqlite3.Connection, publication: Publication, target: Target) -> Loaded:
        """Write the rows, unless the table was altered since the decision and would refuse or change them."""
        table_schema = self._table_schema(connection)
        if table_schema is None:
            raise table_gone(target.table)
        require_fit(table_schema, arrow_schema(publication.schema), target, decided=True)
        with closing(self._spool.read(publication.staged, pipeline=publication.pipeline)) as rows:
            return load(plain_cursor(connection), with_row_numbers(table_schema, rows, target.table), target)

    def _commit(self, connection: sqlite3.Connection) -> None:
        with self._database.unknown_if_cut(self._target.table), COMMIT.around(error=disk_error, lost=disk_error):
            connection.execute(sql.COMMIT)

    def _content(self, connection: sqlite3.Connection, schema: str) -> Totals:
        rows = arrow_schema(schema)
        query = TableStatements(self._target.table, tuple(rows.names)).read()
        return totals_of(scan(plain_cursor(connection), query, rows), self._target.row_digest)


def _locked(point: str) -> sqlite3.Error:
    return sqlite3.OperationalError(f"database is locked ({point})")
