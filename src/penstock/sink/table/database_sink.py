"""The common part of sinks into one table of a database: a connection that publishes, others that read, and retries."""

import logging
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Generic, TypeVar

import pyarrow as pa

from penstock.core.high_water_mark import HighWaterMark
from penstock.core.model import (
    ONLY_ACCOUNT,
    AccountName,
    Finding,
    PipelineName,
    Publication,
    Published,
    SinkKind,
    SinkReport,
    SweepCut,
    Totals,
)
from penstock.errors import Conflict, Failed, PenstockError, PublishFailed, Retryable
from penstock.protocols import SinkDecisions
from penstock.sink.spool.writer import RowCheck
from penstock.sink.table.marker import MarkerStore, TableMarker
from penstock.sink.table.preparation import require_not_lost
from penstock.sink.table.publication import Loaded, apply, decided_target, no_marker
from penstock.sink.table.sink import TableSink
from penstock.sink.table.target import MERGE, NotStoredError, Target
from penstock.sink.table.verification import compare
from penstock.sql.session import Connections, Session

C = TypeVar("C", bound=Session)

TRIES = 5
"""How often a publication is tried while other sessions are in conflict with it. After that, the coordinator tries again."""

_log = logging.getLogger(__name__)


class DatabaseSink(TableSink, Generic[C]):
    """The common part of sinks into one table of a database that is reached by connections, with or without transactions."""

    _database: Connections[C]
    conflicts = 0
    """How often a publication was in conflict with another session and had to be run again."""

    # --- what kinds of databases differ in

    @abstractmethod
    def _existing_table(self, connection: C) -> tuple[str, bool] | None:
        """Describe what exists under the table's name, and say whether rows can be written there. None if nothing exists."""

    @abstractmethod
    def _prepare_table(self, connection: C, pipeline: PipelineName, schema: str) -> RowCheck:
        """Create or check the table and its marker, commit, return the row check. Raise Usage, Refused, the driver's errors."""

    @abstractmethod
    def _require_schema_accepted(self, connection: C, pipeline: PipelineName, schema: str) -> None:
        """Raise what `_prepare_table` would raise, without changing anything."""

    def _add_ledger_id(self, connection: C) -> None:
        """Add the column `ledger_id` to an older Penstock's marker table, and commit. Raise Refused, the driver's errors."""

    @abstractmethod
    def _publish_once(self, publication: Publication) -> Published:
        """Publish, unless the marker shows the publication already. Raise Conflict if another publisher came first."""

    @abstractmethod
    def _readable_marker_store(self, connection: C) -> MarkerStore | None:
        """Return the markers without locking them, None if there are none yet."""

    @abstractmethod
    def _content(self, connection: C, schema: str) -> Totals:
        """Return the totals of all rows of the table. Raise NotStoredError."""

    # --- as `Sink`

    def check(self) -> Sequence[Finding]:
        subject = f"sink {self._name}"
        try:
            with self._database.reader() as connection:
                there = self._existing_table(connection)
        except PenstockError as error:
            return [Finding(subject=subject, ok=False, message=str(error))]
        if there is None:
            what = "will be created" if self._create else "is missing and `create` is false"
            return [Finding(subject=subject, ok=self._create, message=f"table {self._target.table} {what}")]
        found, fits = there
        return [Finding(subject=subject, ok=fits, message=f"{found} in {self._database.place}")]

    def high_water_mark(self, account: AccountName, *, pipeline: PipelineName) -> HighWaterMark | None:
        """Return what the marker says. Raise Failed, Retryable, FormatTooNew, Refused if the table is gone with its rows."""
        if account != ONLY_ACCOUNT:
            return None
        with self._database.reader() as connection:
            marker = self._marker(connection, pipeline)
            if marker is None:
                return None
            require_not_lost(marker, self._target, exists=self._existing_table(connection) is not None)
            return marker.high_water_mark

    def prepare(self, *, pipeline: PipelineName, schema: str | None) -> None:
        """Create or check the table and its marker. Raise Usage, Refused, Failed, Retryable."""
        self._spool.prepare(pipeline)
        self._prepare_target(pipeline, schema)

    def _prepare_target(self, pipeline: PipelineName, schema: str | None) -> None:
        """Do the work of `prepare` in the database."""
        with self._lock, self._database.dropping_on_error():
            connection = self._database.writable(Failed)
            with self._database.translate_errors(Failed):
                self._add_ledger_id(connection)
            if schema is not None:
                self._prepared_for = pipeline, schema
                with self._database.translate_errors(Failed):
                    self._row_validator = self._prepare_table(connection, pipeline, schema)

    def require_schema_accepted(self, *, pipeline: PipelineName, schema: str) -> None:
        with self._database.reader() as connection:
            self._require_schema_accepted(connection, pipeline, schema)

    def publish(self, publication: Publication) -> Published:
        """Publish in one transaction, unless the marker shows the publication already.

        Raises Retryable, OutcomeUnknown, PublishFailed, ContentConflict, StagedDataLost, LedgerMismatch, Refused.
        """
        with self._fetched(publication), self._lock:
            published = self._publish(publication)
        self._spool.discard(publication.staged, pipeline=publication.pipeline)
        return published

    def sweep(self, cut: SweepCut, *, dry_run: bool) -> Sequence[str]:
        """Remove the spool files of dead attempts. Staging tables end with their session at the latest."""
        return self._spool.sweep(cut, dry_run=dry_run)

    def verify(self, decisions: SinkDecisions) -> SinkReport:
        """Compare the table with its marker, and the marker with the ledger."""
        with self._database.reader() as connection:
            return compare(
                self._marker_of_table(connection),
                sink=self._name,
                table=self._target.table,
                decisions=decisions,
                content=lambda marker: self._shown(connection, marker),
                whole_batches=self.kind is not SinkKind.IDEMPOTENT,
            )

    def close(self) -> None:
        """Close the connection; the next call opens another."""
        with self._lock:
            self._database.drop()

    # --- steps

    def _high_water_mark(self, connection: C, pipeline: PipelineName) -> HighWaterMark | None:
        marker = self._marker(connection, pipeline)
        return None if marker is None else marker.high_water_mark

    def _marker(self, connection: C, pipeline: PipelineName) -> TableMarker | None:
        markers = self._readable_marker_store(connection)
        return None if markers is None else markers.read(pipeline, self._name)

    def _publish(self, publication: Publication) -> Published:
        for times in range(1, TRIES + 1):
            try:
                with self._translate_missing_markers(publication):
                    return self._publish_once(publication)
            except Conflict as conflict:
                self._count(conflict)
                if times == TRIES:
                    raise self._conflict_error(conflict, times=times) from conflict
        raise AssertionError("there is at least one try")

    @contextmanager
    def _translate_missing_markers(self, publication: Publication) -> Iterator[None]:
        """Re-raise a database's own error as that of a missing marker, if the table of markers is what it misses."""
        try:
            yield
        except PublishFailed as failure:
            if failure.__cause__ is not None and self._lacks_markers():
                raise no_marker(publication) from failure
            raise

    def _lacks_markers(self) -> bool:
        """Return whether the database has no table of markers, False if it does not answer."""
        with suppress(PenstockError), self._database.reader() as connection:
            return self._readable_marker_store(connection) is None
        return False

    def _count(self, conflict: Conflict) -> None:
        self.conflicts += 1
        _log.warning("sink %s: publishing is run again, for the %d. time: %s", self._name, self.conflicts, conflict)

    def _conflict_error(self, conflict: Conflict, *, times: int) -> Retryable | PublishFailed:
        often = f"{times} time{'s' * (times > 1)}"
        return Retryable(
            f"Publishing into table {self._target.table!r} conflicted with another session {often}: {conflict}.",
            remedy="Have other programs write in shorter transactions, or look for a trigger that drops rows; then try again.",
        )

    def _marker_of_table(self, connection: C) -> TableMarker | None:
        markers = self._readable_marker_store(connection)
        owners = [] if markers is None else markers.owners(self._target.table)
        return markers.read(*owners[0]) if markers is not None and owners else None

    def _shown(self, connection: C, marker: TableMarker) -> Totals:
        if self._existing_table(connection) is None:
            raise NotStoredError("it is gone")
        return self._shown_rows(connection, marker)

    def _shown_rows(self, connection: C, marker: TableMarker) -> Totals:
        if marker.write == MERGE:
            return marker.before + marker.after  # only the user knows which rows are there
        return marker.before if marker.schema is None else self._content(connection, marker.schema)


class TransactionalSink(DatabaseSink[C]):
    """The common part of sinks that write the rows and the marker of a batch in one transaction of the database."""

    @abstractmethod
    def _marker_store(self, connection: C) -> MarkerStore:
        """Return the markers; reading one excludes other publishers until the end of the transaction."""

    @abstractmethod
    def _begin(self, connection: C) -> None:
        """Open a transaction."""

    @abstractmethod
    def _load(self, connection: C, publication: Publication, target: Target) -> Loaded:
        """Write the rows into the table, as decided in `target`."""

    def _held_rows(self, connection: C, rows: "pa.Schema", target: Target) -> Iterator["pa.RecordBatch"]:
        """Yield the rows of the table, which nobody can alter until the transaction ends. Only for sinks that widen columns."""
        raise NotImplementedError

    @abstractmethod
    def _commit(self, connection: C) -> None:
        """Commit. Raise OutcomeUnknown if no answer arrives."""

    def _publish_once(self, publication: Publication) -> Published:
        with self._database.dropping_on_error():
            connection = self._database.writable()
            with self._database.translate_errors(runs_again=True):
                self._begin(connection)
                published = self._apply(connection, publication)
            self._commit(connection)  # I6: rows and marker become visible together
        self._note(publication)
        return published

    def _publish_in_ledger(self, connection: C, publication: Publication) -> Published:
        """Publish in the caller's open transaction. The caller commits, and runs that transaction again after Retryable."""
        with self._lock:
            try:
                with self._translate_missing_markers(publication), self._database.translate_errors(runs_again=True):
                    return self._apply(connection, publication)
            except Conflict as conflict:
                self._count(conflict)
                raise self._conflict_error(conflict, times=1) from conflict

    def _apply(self, connection: C, publication: Publication) -> Published:
        markers, since, target = self._marker_store(connection), self._committed, decided_target(publication, self._target)
        return self._note_applied(
            apply(
                markers,
                publication,
                target,
                since=since,
                load=lambda: self._load(connection, publication, target),
                read=lambda rows: self._held_rows(connection, rows, target),
            )
        )
