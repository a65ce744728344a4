"""The sqlite sink: rows and marker in one transaction, which is the ledger's if both are in one file."""

import os
import sqlite3
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.core.faults import FaultPoint
from penstock.core.high_water_mark import HighWaterMark
from penstock.core.model import (
    ONLY_ACCOUNT,
    AccountName,
    Finding,
    PipelineName,
    Publication,
    Published,
    SinkReport,
    SweepCut,
    Totals,
)
from penstock.errors import Failed, OutcomeUnknown, PenstockError, Usage
from penstock.protocols import SinkDecisions
from penstock.sink.sqlite import statements as sql
from penstock.sink.sqlite.database import BUSY_TIMEOUT_S, Database, diagnose_file, disk_error
from penstock.sink.sqlite.load import load
from penstock.sink.sqlite.marker_store import SqliteMarkerStore, readable_marker_store
from penstock.sink.sqlite.preparation import create_own_tables, decided_rows, prepare_table, require_schema_accepted
from penstock.sink.sqlite.scan import scan
from penstock.sink.sqlite.table_schema import table_schema_of
from penstock.sink.table.content import totals_of
from penstock.sink.table.marker import TableMarker
from penstock.sink.table.publication import Loaded, apply, decided_target
from penstock.sink.table.sink import TableSink, TableSinkArguments
from penstock.sink.table.target import NotStoredError
from penstock.sink.table.verification import compare, without_marker
from penstock.spark.schema import arrow_schema

if TYPE_CHECKING:
    from typing_extensions import Unpack

BEGIN = FaultPoint("sqlite.begin", "The write lock of the database is taken.")
COMMIT = FaultPoint("sqlite.commit", "Rows and marker are committed.")
PREPARE = FaultPoint("sqlite.prepare", "Table and marker are created and committed.")


class SqliteSink(TableSink):
    """A `TableSink` that delivers into one table of an SQLite file.

    Waits `busy_timeout_s` for another writer of the file, then raises Retryable.
    """

    def __init__(
        self, *, path: "str | os.PathLike[str]", busy_timeout_s: float = BUSY_TIMEOUT_S, **filling: "Unpack[TableSinkArguments]"
    ) -> None:
        _require_lasting(os.fspath(path))
        super().__init__(**filling)
        self._database = Database(os.fspath(path), busy_timeout_s=busy_timeout_s)

    @property
    def home(self) -> str | None:
        """`sqlite:` and the file's real path, which is also the home of a `SqliteLedger` in that file."""
        return self._database.home

    def check(self) -> Sequence[Finding]:
        """Look at the file, or at the directory where it would be created."""
        path = Path(self._database.path)
        if not path.exists():
            directory = path.parent
            usable = self._create and directory.is_dir() and os.access(directory, os.W_OK)
            message = f"{path} will be created" if usable else f"{path} is missing and cannot be created in {directory}"
            return [Finding(subject=f"sink {self._name}", ok=usable, message=message)]
        try:
            return [self._check_file()]
        except PenstockError as error:
            return [Finding(subject=f"sink {self._name}", ok=False, message=str(error))]

    def high_water_mark(self, account: AccountName, *, pipeline: PipelineName) -> HighWaterMark | None:
        """Return what the marker in the database file shows. Raises Failed, Retryable, FormatTooNew."""
        if account != ONLY_ACCOUNT or not Path(self._database.path).exists():
            return None
        with self._database.reader() as cursor:
            markers = readable_marker_store(cursor)
            marker = None if markers is None else markers.read(pipeline, self._name)
        return None if marker is None else marker.high_water_mark

    def prepare(self, *, pipeline: PipelineName, schema: str | None) -> None:
        """Create or check the table and its marker. Raises Usage, Refused, Failed, Retryable."""
        self._spool.prepare(pipeline)
        if schema is None and not Path(self._database.path).exists():
            return
        with self._lock, self._database.dropping_on_error():
            connection = self._database.writable(create=self._create and schema is not None, kind=Failed)
            with self._database.translate_errors(Failed), PREPARE.around(error=disk_error, lost=disk_error):
                self._prepare(connection, pipeline, schema)

    def require_schema_accepted(self, *, pipeline: PipelineName, schema: str) -> None:
        with ExitStack() as opened:
            exists = Path(self._database.path).exists()
            cursor = opened.enter_context(self._database.reader()) if exists else None
            require_schema_accepted(
                cursor, pipeline=pipeline, sink=self._name, schema=schema, target=self._target, create=self._create
            )

    def publish(self, publication: Publication) -> Published:
        """Publish in one transaction, unless the marker shows that this was done.

        Raises Retryable, OutcomeUnknown, PublishFailed, ContentConflict, StagedDataLost, LedgerMismatch.
        """
        with self._fetched(publication), self._lock, self._database.dropping_on_error():
            connection = self._database.writable()
            with self._database.translate_errors():
                with BEGIN.around(error=_locked, lost=_locked):
                    connection.execute(sql.BEGIN)
                published = self._apply(connection, publication)
            self._commit(connection)
            self._note(publication)
        self._spool.discard(publication.staged, pipeline=publication.pipeline)
        return published

    def publish_within(self, transaction: object, publication: Publication) -> Published:
        """Publish in the ledger's transaction on the same file. If this raises, the ledger rolls back."""
        if not isinstance(transaction, sqlite3.Connection):
            raise TypeError(f"expected an sqlite3.Connection, found {type(transaction).__name__}")
        with self._lock, self._database.translate_errors():
            return self._apply(transaction, publication)

    def sweep(self, cut: SweepCut, *, dry_run: bool) -> Sequence[str]:
        return self._spool.sweep(cut, dry_run=dry_run)

    def verify(self, decisions: SinkDecisions) -> SinkReport:
        """Compare the table with its marker, and the marker with the ledger."""
        if not Path(self._database.path).exists():
            return without_marker(decisions, f"There is no database file {self._database.path}.")
        with self._database.reader() as cursor:
            return compare(
                self._marker_of_table(cursor),
                sink=self._name,
                table=self._target.table,
                decisions=decisions,
                content=lambda marker: self._content(cursor, marker),
            )

    def close(self) -> None:
        """Close the connection; the next call opens another."""
        with self._lock:
            self._database.drop()

    # --- steps

    def _described(self, rows: str) -> str:
        table = f"table {self._target.table} of {self._database.path}"
        return f"one transaction: {rows} {table}; the ledger's own if it is in the same file"

    def _prepare(self, connection: sqlite3.Connection, pipeline: PipelineName, schema: str | None) -> None:
        connection.execute(sql.BEGIN)
        cursor = connection.cursor()
        create_own_tables(cursor)
        if schema is not None:
            self._prepared_for = pipeline, schema
            self._row_validator = prepare_table(
                cursor, pipeline=pipeline, sink=self._name, schema=schema, target=self._target, create=self._create
            )
        connection.execute(sql.COMMIT)

    def _apply(self, connection: sqlite3.Connection, publication: Publication) -> Published:
        with closing(self._spool.read(publication.staged, pipeline=publication.pipeline)) as rows:
            cursor = connection.cursor()
            markers, since, target = SqliteMarkerStore(cursor), self._committed, decided_target(publication, self._target)

            def load_within() -> Loaded:
                return load(cursor, decided_rows(cursor, rows, publication.schema, target), target)

            return self._note_applied(apply(markers, publication, target, since=since, load=load_within))

    def _commit(self, connection: sqlite3.Connection) -> None:
        try:
            with COMMIT.around(error=disk_error, lost=disk_error):
                connection.execute(sql.COMMIT)
        except sqlite3.Error as cause:
            seen = diagnose_file(cause, self._database.path)
            raise OutcomeUnknown(
                f"The COMMIT of table {self._target.table!r} in {self._database.path} gave no answer: {seen.reason}.",
                remedy=f"{seen.advice} and try again: the marker in the database says whether it happened.",
            ) from cause

    def _marker_of_table(self, cursor: sqlite3.Cursor) -> TableMarker | None:
        markers = readable_marker_store(cursor)
        owners = [] if markers is None else markers.owners(self._target.table)
        return markers.read(*owners[0]) if markers is not None and owners else None

    def _content(self, cursor: sqlite3.Cursor, marker: TableMarker) -> Totals:
        if table_schema_of(cursor, self._target.table) is None:
            raise NotStoredError("it is gone")
        if marker.schema is None:
            return marker.before
        schema = arrow_schema(marker.schema)
        query = sql.TableStatements(self._target.table, tuple(schema.names)).read()
        return totals_of(scan(cursor, query, schema), self._target.row_digest)

    def _check_file(self) -> Finding:
        subject = f"sink {self._name}"
        with self._database.reader() as cursor:
            table_schema = table_schema_of(cursor, self._target.table)
        if table_schema is None:
            what = "will be created" if self._create else "is missing and `create` is false"
            return Finding(subject=subject, ok=self._create, message=f"table {self._target.table} {what}")
        return Finding(
            subject=subject,
            ok=table_schema.kind == "table" and os.access(self._database.path, os.W_OK),
            message=f"{table_schema.kind} {self._target.table} with {len(table_schema.columns)} columns in {self._database.path}",
        )


def _require_lasting(path: str) -> None:
    if path in {"", ":memory:"}:
        raise Usage("A database in memory is lost at exit.", remedy="Name a file, or use a sink of type memory.")


def _locked(point: str) -> sqlite3.Error:
    return sqlite3.OperationalError(f"database is locked ({point})")
