"""The common part of sinks whose database is a server: one connection that publishes, readers, and transactions run again."""

import logging
from abc import abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Generic, Protocol, TypeVar

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
from penstock.sink.table.publication import Loaded, apply, decided_target
from penstock.sink.table.sink import TableSink
from penstock.sink.table.target import MERGE, NotStoredError, Target
from penstock.sink.table.verification import compare

C = TypeVar("C")
C_co = TypeVar("C_co", covariant=True)

TRIES = 5
"""How often publishing is run while other sessions are in the way. The coordinator tries again after that."""

_log = logging.getLogger(__name__)


class ServedDatabase(Protocol[C_co]):
    """A database on a server. A connection on which anything failed is dropped: the marker, read by a new one, tells the rest."""

    place: str

    def writable(self, kind: type[Failed] = ...) -> C_co:
        """The open connection, or a new one to a server that keeps what it commits. Raises Retryable, `kind`, Refused."""
        ...

    def drop(self) -> None:
        """Close, which rolls back what is open."""
        ...

    def dropping_on_error(self) -> AbstractContextManager[None]:
        """Never use a connection again on which something failed."""
        ...

    def reader(self) -> AbstractContextManager[C_co]:
        """A connection of its own that cannot write and sees one snapshot."""
        ...

    def translate_errors(self, kind: type[Failed] = ..., *, runs_again: bool = False) -> AbstractContextManager[None]:
        """Raise the driver's errors as Retryable or as `kind`; those of a caller that runs it again at once as Conflict."""
        ...


class DatabaseSink(TableSink, Generic[C]):
    """Delivers into one table of a database that is reached by connections, whatever that knows of transactions."""

    _database: ServedDatabase[C]
    conflicts = 0
    """How often publishing was run again because another session was in the way."""

    # --- what kinds of databases differ in

    @abstractmethod
    def _look(self, connection: C) -> tuple[str, bool] | None:
        """What is there under the table's name, for people, and whether rows can go there; None if nothing is."""

    @abstractmethod
    def _prepare_table(self, connection: C, pipeline: PipelineName, schema: str) -> RowCheck:
        """Make the table and its marker, and commit. Raises Usage, Refused, the driver's errors."""

    @abstractmethod
    def _require_schema_accepted(self, connection: C, pipeline: PipelineName, schema: str) -> None:
        """Raise what `_prepare_table` would, changing nothing."""

    def _name_markers(self, connection: C) -> None:
        """Add the column `ledger_id` to markers of an older Penstock, and commit. Raises Refused, the driver's errors."""

    @abstractmethod
    def _publish_once(self, publication: Publication) -> Published:
        """Show it, unless the marker says that it is shown. Raises Conflict where another publisher came first."""

    @abstractmethod
    def _readable_marker_store(self, connection: C) -> MarkerStore | None:
        """The markers, not locked; None where there are none yet."""

    @abstractmethod
    def _content(self, connection: C, schema: str) -> Totals:
        """Every row of the table. Raises NotStoredError."""

    # --- as `Sink`

    def check(self) -> Sequence[Finding]:
        """Look at the database and its table."""
        subject = f"sink {self._name}"
        try:
            with self._database.reader() as connection:
                there = self._look(connection)
        except PenstockError as error:
            return [Finding(subject=subject, ok=False, message=str(error))]
        if there is None:
            what = "will be created" if self._create else "is missing and `create` is false"
            return [Finding(subject=subject, ok=self._create, message=f"table {self._target.table} {what}")]
        found, fits = there
        return [Finding(subject=subject, ok=fits, message=f"{found} in {self._database.place}")]

    def high_water_mark(self, account: AccountName, *, pipeline: PipelineName) -> HighWaterMark | None:
        """What the marker of this sink says. Raises Failed, Retryable, FormatTooNew."""
        if account != ONLY_ACCOUNT:
            return None
        with self._database.reader() as connection:
            return self._high_water_mark(connection, pipeline)

    def prepare(self, *, pipeline: PipelineName, schema: str | None) -> None:
        """Create or check table and marker. Raises Usage, Refused, Failed, Retryable."""
        self._spool.prepare(pipeline)
        with self._lock, self._database.dropping_on_error():
            connection = self._database.writable(Failed)
            with self._database.translate_errors(Failed):
                self._name_markers(connection)
            if schema is not None:
                self._prepared_for = pipeline, schema
                with self._database.translate_errors(Failed):
                    self._row_validator = self._prepare_table(connection, pipeline, schema)

    def require_schema_accepted(self, *, pipeline: PipelineName, schema: str) -> None:
        """Refuse rows that the table cannot hold, without creating anything."""
        with self._database.reader() as connection:
            self._require_schema_accepted(connection, pipeline, schema)

    def publish(self, publication: Publication) -> Published:
        """One transaction, unless the marker says that it was.

        Raises Retryable, OutcomeUnknown, PublishFailed, ContentConflict, StagedDataLost, LedgerMismatch, Refused.
        """
        with self._fetched(publication), self._lock:
            published = self._publish(publication)
        self._spool.discard(publication.staged, pipeline=publication.pipeline)
        return published

    def sweep(self, cut: SweepCut, *, dry_run: bool) -> Sequence[str]:
        """Collect the spool files of dead attempts. Staging tables end by themselves, whatever happens to the driver."""
        return self._spool.sweep(cut, dry_run=dry_run)

    def verify(self, decisions: SinkDecisions) -> SinkReport:
        """Compare the table with its marker and the marker with the ledger."""
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
        marks = self._readable_marker_store(connection)
        marker = None if marks is None else marks.read(pipeline, self._name)
        return None if marker is None else marker.high_water_mark

    def _publish(self, publication: Publication) -> Published:
        for times in range(1, TRIES + 1):
            try:
                return self._publish_once(publication)
            except Conflict as conflict:
                self._count(conflict)
                if times == TRIES:
                    raise self._in_the_way(conflict, times=times) from conflict
        raise AssertionError("there is at least one try")

    def _count(self, conflict: Conflict) -> None:
        self.conflicts += 1
        _log.warning("sink %s: publishing is run again, for the %d. time: %s", self._name, self.conflicts, conflict)

    def _in_the_way(self, conflict: Conflict, *, times: int) -> Retryable | PublishFailed:
        return Retryable(
            f"Another session was in the way of table {self._target.table!r} {times} time{'s' * (times > 1)}: {conflict}.",
            remedy="Have other programs write in shorter transactions, or look for a trigger that drops rows; then try again.",
        )

    def _marker_of_table(self, connection: C) -> TableMarker | None:
        marks = self._readable_marker_store(connection)
        owners = [] if marks is None else marks.owners(self._target.table)
        return marks.read(*owners[0]) if marks is not None and owners else None

    def _shown(self, connection: C, marker: TableMarker) -> Totals:
        if self._look(connection) is None:
            raise NotStoredError("it is gone")
        if marker.write == MERGE:
            return marker.before + marker.after  # only the user knows which rows are there
        return marker.before if marker.schema is None else self._content(connection, marker.schema)


class ServerSink(DatabaseSink[C]):
    """Delivers into one table of a database by transactions of a server's kind."""

    @abstractmethod
    def _marker_store(self, connection: C) -> MarkerStore:
        """The markers, locked by reading them."""

    @abstractmethod
    def _begin(self, connection: C) -> None:
        """Open a transaction."""

    @abstractmethod
    def _load(self, connection: C, publication: Publication, target: Target) -> Loaded:
        """Write the rows into the table, as `target` says it was decided."""

    @abstractmethod
    def _commit(self, connection: C) -> None:
        """Raise OutcomeUnknown where there is no answer."""

    def _publish_once(self, publication: Publication) -> Published:
        with self._database.dropping_on_error():
            connection = self._database.writable()
            with self._database.translate_errors(runs_again=True):
                self._begin(connection)
                published = self._apply(connection, publication)
            self._commit(connection)
        self._note(publication)
        return published

    def _ride(self, connection: C, publication: Publication) -> Published:
        """In a transaction that is not ours, and that whoever began it runs again."""
        with self._lock:
            try:
                with self._database.translate_errors(runs_again=True):
                    return self._apply(connection, publication)
            except Conflict as conflict:
                self._count(conflict)
                raise self._in_the_way(conflict, times=1) from conflict

    def _apply(self, connection: C, publication: Publication) -> Published:
        marks, since, target = self._marker_store(connection), self._committed, decided_target(publication, self._target)
        return self._note_applied(
            apply(marks, publication, target, since=since, load=lambda: self._load(connection, publication, target))
        )
