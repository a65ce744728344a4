"""The postgres sink: rows and marker in one transaction, and in the ledger's own where both are in one database."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from threading import RLock

import psycopg

from penstock.errors import Conflict, Failed, PenstockError, Retryable
from penstock.faults import FaultPoint
from penstock.model import (
    ONLY_ACCOUNT,
    AccountName,
    Finding,
    PipelineName,
    Position,
    Publication,
    Published,
    SinkName,
    SinkReport,
    SweepCut,
    Totals,
)
from penstock.postgres.database import LOCK_TIMEOUT_S, Connection, Database
from penstock.postgres.names import split_name
from penstock.postgres.trouble import cut_off
from penstock.sink.postgres import statements as sql
from penstock.sink.postgres.admission import Admission
from penstock.sink.postgres.marks import PostgresMarks
from penstock.sink.postgres.move import move
from penstock.sink.postgres.preparation import content_of, prepare_table, require_admitted
from penstock.sink.postgres.shape import require_fit, shape_of, statements_of
from penstock.sink.spool import INLINE_LIMIT_BYTES, Spool, SpoolRoot, SpoolStager
from penstock.sink.table.marker import TableMarker
from penstock.sink.table.publication import Moved, apply
from penstock.sink.table.ride import Ride
from penstock.sink.table.sink import TableSink
from penstock.sink.table.target import BY_KEY, NotStoredError, Target, require_write
from penstock.sink.table.verification import compare
from penstock.sparkschema import arrow_schema

BEGIN = FaultPoint("postgres.begin", "A transaction is opened on the server.")
COMMIT = FaultPoint("postgres.commit", "Rows and marker are committed.")
PREPARE = FaultPoint("postgres.prepare", "Table and marker are created and committed.")

_TRIES = 5
"""How often a transaction is run that PostgreSQL rolled back because of another one. The coordinator tries again after that."""

_log = logging.getLogger(__name__)


class PostgresSink(TableSink):
    """Delivers into one table of a PostgreSQL database.

    `write` is `append`, `upsert` (a row replaces the one with its key), `insert_if_absent` (a row is skipped if its key is there)
    or `replace` (each batch is the whole table). Several rows of one batch with one key count in their frozen order, pieces as
    decided and rows as written: `upsert` keeps the last, `insert_if_absent` the first, at every repetition the same. Spark
    promises no order between partitions, so aggregate by the key first where it matters.

    Safe to use from several threads; waits `lock_timeout_s` for another session's lock, then raises Retryable.
    """

    def __init__(
        self,
        *,
        name: SinkName,
        url: str,
        table: str,
        spool: "SpoolRoot | str",
        write: str = "append",
        key: Sequence[str] = (),
        create: bool = True,
        lock_timeout_s: float = LOCK_TIMEOUT_S,
        inline_limit_bytes: int = INLINE_LIMIT_BYTES,
    ) -> None:
        require_write(write, key)
        self._schema, _ = split_name(table)
        super().__init__(name=name, spool=Spool(root=spool, sink=name, inline_limit_bytes=inline_limit_bytes))
        self._create = create
        self._target = Target(table=table, write=write, key=tuple(key) if write in BY_KEY else (), case_counts=True)
        self._database = Database(url, application=f"penstock:{name}", lock_timeout_s=lock_timeout_s)
        self._admission: Admission | None = None
        self._ride = Ride(self._spool, sink=name)
        self._lock = RLock()
        self.conflicts = 0
        """How many transactions were run again because PostgreSQL rolled them back for another one's sake."""

    @property
    def home(self) -> str | None:
        """As `Database.home`, which is also that of a ledger there."""
        return self._database.home

    def describe(self) -> Mapping[str, str]:
        """For `penstock explain`."""
        how = self._target.write + (f" by {', '.join(self._target.key)}" if self._target.key else "")
        return {
            "stage": f"inline in the decision up to {self._spool.inline_limit_bytes} bytes a task, "
            f"else Arrow files in {self._spool.root.url}",
            "publish": f"one transaction on one connection: binary COPY into a temporary table, rows ({how}) and marker into "
            f"table {self._target.table} of {self._database.place}; the ledger's own if it has the same URL",
        }

    def check(self) -> Sequence[Finding]:
        """Look at the database and its table."""
        subject = f"sink {self._name}"
        try:
            with self._database.reader() as connection:
                shape = shape_of(connection, *split_name(self._target.table))
        except PenstockError as trouble:
            return [Finding(subject=subject, ok=False, message=str(trouble))]
        if shape is None:
            what = "will be created" if self._create else "is missing and `create` is false"
            return [Finding(subject=subject, ok=self._create, message=f"table {self._target.table} {what}")]
        message = f"{shape.kind} {self._target.table} with {len(shape.columns)} columns in {self._database.place}"
        return [Finding(subject=subject, ok=shape.kind.endswith("table"), message=message)]

    def remembers(self, account: AccountName, *, pipeline: PipelineName) -> Position | None:
        """Where the marker of this sink stands. Raises Failed, Retryable, FormatTooNew."""
        if account != ONLY_ACCOUNT:
            return None
        with self._database.reader() as connection:
            marks = self._readable_marks(connection)
            marker = None if marks is None else marks.read(pipeline, self._name)
        return None if marker is None else marker.position

    def prepare(self, *, pipeline: PipelineName, schema: str | None) -> None:
        """Create or check table and marker. Raises Usage, Refused, Failed, Retryable."""
        self._spool.prepare(pipeline)
        with self._lock, self._database.dropping_on_error():
            connection = self._database.writable(Failed)
            if schema is None:
                return
            with self._database.told(Failed), PREPARE.around(error=cut_off, lost=cut_off):
                self._database.begin(connection)
                self._admission = prepare_table(
                    connection, pipeline=pipeline, sink=self._name, schema=schema, target=self._target, create=self._create
                )
                self._database.commit(connection)

    def require_admitted(self, *, pipeline: PipelineName, schema: str) -> None:
        """Refuse rows that the table cannot hold, without creating anything."""
        with self._database.reader() as connection:
            require_admitted(
                connection, pipeline=pipeline, sink=self._name, schema=schema, target=self._target, create=self._create
            )

    def stager(self) -> SpoolStager:
        """The recipe for the tasks: the spool, and the check that the table can take the rows."""
        if self._admission is None:
            raise Failed(f"Sink {self._name!r} was not prepared with a schema.", remedy="Call prepare() first.")
        return self._spool.stager(self._admission)

    def publish(self, publication: Publication) -> Published:
        """One transaction, unless the marker says that it was.

        Raises Retryable, OutcomeUnknown, PublishFailed, ContentConflict, StagedDataLost, LedgerMismatch, Refused.
        """
        with self._lock:
            published = self._publish(publication)
        self._spool.discard(publication.staged, pipeline=publication.pipeline)
        return published

    def publish_within(self, transaction: object, publication: Publication) -> Published:
        """As `publish`, in the ledger's transaction on the same database; the ledger rolls back what raised, and repeats."""
        if not isinstance(transaction, psycopg.Connection):
            raise TypeError(f"expected a psycopg.Connection, found {type(transaction).__name__}")
        with self._lock:
            try:
                with self._database.told(runs_again=True):
                    marks = PostgresMarks(transaction, self._schema, locking=False)
                    self._ride.discard(marks, publication.pipeline, before=publication.position)
                    published = self._apply(transaction, publication)
            except Conflict as conflict:
                self._count(conflict)
                raise self._in_the_way(conflict, times=1) from conflict
            self._ride.note(publication)
        return published

    def sweep(self, cut: SweepCut, *, dry_run: bool) -> Sequence[str]:
        """Collect the spool files of dead attempts, and those of the last ride. Staging tables end with their transaction."""
        with self._lock:
            if self._ride.pending and not dry_run:
                with self._database.reader() as connection:
                    self._ride.discard(PostgresMarks(connection, self._schema, locking=False), cut.pipeline)
        return self._spool.sweep(cut, dry_run=dry_run)

    def verify(self, *, expected: Mapping[AccountName, Totals], known: Iterator[Publication]) -> SinkReport:
        """Compare the table with its marker and the marker with the ledger."""
        with self._database.reader() as connection:
            return compare(
                self._marker_of_table(connection),
                sink=self._name,
                table=self._target.table,
                expected=expected.get(ONLY_ACCOUNT, Totals()),
                known=known,
                content=lambda marker: self._content(connection, marker),
            )

    def close(self) -> None:
        """Close the connection; the next call opens another."""
        with self._lock:
            self._database.drop()

    # --- steps

    def _publish(self, publication: Publication) -> Published:
        for times in range(1, _TRIES + 1):
            try:
                return self._publish_once(publication)
            except Conflict as conflict:
                self._count(conflict)
                if times == _TRIES:
                    raise self._in_the_way(conflict, times=times) from conflict
        raise AssertionError("there is at least one try")

    def _count(self, conflict: Conflict) -> None:
        self.conflicts += 1
        _log.warning("sink %s: rolled back for the %d. time and run again: %s", self._name, self.conflicts, conflict)

    def _in_the_way(self, conflict: Conflict, *, times: int) -> Retryable:
        return Retryable(
            f"Another session was in the way of table {self._target.table!r} {times} time{'s' * (times > 1)}: {conflict}.",
            remedy="Have other programs write in shorter transactions, or look for a trigger that drops rows; then try again.",
        )

    def _publish_once(self, publication: Publication) -> Published:
        with self._database.dropping_on_error():
            connection = self._database.writable()
            with self._database.told(runs_again=True):
                with BEGIN.around(error=cut_off, lost=cut_off):
                    self._database.begin(connection)
                published = self._apply(connection, publication)
            self._commit(connection)
        return published

    def _apply(self, connection: Connection, publication: Publication) -> Published:
        marks = PostgresMarks(connection, self._schema, locking=True)
        return apply(marks, publication, self._target, move=lambda: self._move(connection, publication))

    def _move(self, connection: Connection, publication: Publication) -> Moved:
        """The table is looked at once more, and cannot be altered until the end: its types say how rows are cast."""
        schema = arrow_schema(publication.schema)
        connection.execute(statements_of(schema, self._target).lock())
        shape = shape_of(connection, *split_name(self._target.table))
        assert shape is not None, "it is locked"
        require_fit(shape, schema, self._target)
        with closing(self._spool.read(publication.staged, pipeline=publication.pipeline)) as rows:
            return move(connection, rows, schema, shape, self._target)

    def _commit(self, connection: Connection) -> None:
        """After an error nobody knows whether it happened: the next try locks the marker on a new connection, and reads it."""
        with (
            self._database.unknown_if_cut(f"table {self._target.table!r}", read="the marker"),
            COMMIT.around(error=cut_off, lost=cut_off),
        ):
            self._database.commit(connection)

    def _readable_marks(self, connection: Connection) -> PostgresMarks | None:
        if shape_of(connection, self._schema, sql.MARKER_TABLE) is None:
            return None
        return PostgresMarks(connection, self._schema, locking=False)

    def _marker_of_table(self, connection: Connection) -> TableMarker | None:
        marks = self._readable_marks(connection)
        owners = [] if marks is None else marks.owners(self._target.table)
        return marks.read(*owners[0]) if marks is not None and owners else None

    def _content(self, connection: Connection, marker: TableMarker) -> Totals:
        if shape_of(connection, *split_name(self._target.table)) is None:
            raise NotStoredError("it is gone")
        return marker.before if marker.schema is None else content_of(connection, arrow_schema(marker.schema), self._target)
