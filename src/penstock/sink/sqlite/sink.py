"""The sqlite sink: rows and marker in one transaction, which is the ledger's if both are in one file."""

import sqlite3
from dataclasses import replace
from functools import partial

from penstock.core.faults import FaultPoint
from penstock.core.model import Publication, Published
from penstock.sink.sqlite import statements as sql
from penstock.sink.sqlite.database import Database, disk_error
from penstock.sink.sqlite.load import load, read_there
from penstock.sink.sqlite.table_schema import TABLES, TableSchema
from penstock.sink.table.dialect import FaultPoints
from penstock.sink.table.file import FileSink
from penstock.sink.table.marker_store import DBAPI_MARKER_TABLE
from penstock.sink.table.preparation import require_unfilled

BEGIN = FaultPoint("sqlite.begin", "The write lock of the database is taken.")
MARK = FaultPoint("sqlite.mark", "The marker is set to the batch, in the transaction of its rows.")
COMMIT = FaultPoint("sqlite.commit", "Rows and marker are committed.")
PREPARE = FaultPoint("sqlite.prepare", "Table and marker are created and committed.")


def _locked(point: str) -> sqlite3.Error:
    return sqlite3.OperationalError(f"database is locked ({point})")


class SqliteSink(FileSink[sqlite3.Connection, TableSchema]):
    """A `TableSink` that delivers into one table of an SQLite file.

    Waits `busy_timeout_s` for another writer of the file, then raises Retryable.
    """

    _database_type = Database
    _tables = TABLES
    _widens = True
    _compares = True
    _points = replace(
        FaultPoints.of(disk_error, prepare=PREPARE.around, mark=MARK.around, commit=COMMIT.around),
        begin=partial(BEGIN.around, error=_locked, lost=_locked),
    )
    _own_statements = sql.OwnStatements
    _write = staticmethod(load)
    _read_there = staticmethod(read_there)

    @property
    def home(self) -> str | None:
        """`sqlite:` and the file's real path, which is also the home of a `SqliteLedger` in that file."""
        return f"sqlite:{self._database.path}"

    def publish_within(self, transaction: object, publication: Publication) -> Published:
        if not isinstance(transaction, sqlite3.Connection):
            raise TypeError(f"expected an sqlite3.Connection, found {type(transaction).__name__}")
        return self._publish_in_ledger(transaction, publication)

    def _described(self, rows: str) -> str:
        table = f"table {self._target.table} of {self._database.path}"
        return f"one transaction: {rows} {table}; that of the ledger if it is in the same file"

    def _require_unfilled(self, connection: sqlite3.Connection, _: TableSchema | None) -> None:
        if self._table_schema(connection, DBAPI_MARKER_TABLE) is not None:
            require_unfilled(connection.execute(sql.OWNERS_OF_DBAPI), self._target.table)
