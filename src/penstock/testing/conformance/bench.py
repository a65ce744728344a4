"""The coordinator's part played by hand: stage, decide and publish one step at a time, in any order."""

import threading
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.reduction import ForkingPickler

import pyarrow as pa

from penstock.core.model import (
    ONLY_ACCOUNT,
    AccountName,
    Attempt,
    Batch,
    BatchId,
    Generation,
    LedgerId,
    OffsetRange,
    Position,
    Publication,
    Published,
    QueryId,
    Removal,
    SinkReport,
    SourceName,
    Staged,
    SweepCut,
    Totals,
    new_nonce,
)
from penstock.errors import Retryable
from penstock.protocols import Sink, Stager, StageWriter
from penstock.testing.conformance.rig import LEDGER_ID, PIPELINE, Row, SinkRig, require_equal

QUERY = QueryId("5f0c9f0e-0000-4000-8000-000000000001")
_TRIES = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A decided batch, and the rows of each attempt in it."""

    publication: Publication
    attempts: tuple[tuple[Row, ...], ...]

    @property
    def rows(self) -> list[Row]:
        return [row for attempt in self.attempts for row in attempt]


class DecidedBatches:
    """The `SinkDecisions` of publications, oldest first, all published. `totals` stands in for a ledger that pruned some."""

    def __init__(self, decided: Sequence[Publication], *, totals: Mapping[AccountName, Totals] | None = None) -> None:
        self._decided, self._totals = decided, totals
        self.published_at = decided[-1].position if decided else Position(0)

    def totals(self, position: Position) -> Mapping[AccountName, Totals]:
        return expected_of(self.publications(position)) if self._totals is None else self._totals

    def publications(self, position: Position | None = None) -> Iterator[Publication]:
        return (one for one in reversed(self._decided) if position is None or one.position <= position)

    def removals(self) -> Iterator[Removal]:
        return iter(())


class Bench:
    """One pipeline that delivers to one rig. Closing it closes every sink it made."""

    def __init__(self, rig: SinkRig) -> None:
        self.rig = rig
        self.decided: list[Shown] = []
        self._made: list[Sink] = []
        self._batches: dict[Hashable, tuple[Sequence[Row], pa.RecordBatch, pa.UInt64Array]] = {}

    def sink(self) -> Sink:
        """Return a new, prepared sink on the rig's target."""
        sink = self.rig.make_hashing()
        self._made.append(sink)
        sink.prepare(pipeline=PIPELINE, schema=self.rig.schema)
        return sink

    def close(self) -> None:
        for sink in self._made:
            sink.close()

    def rows(self, ids: Iterable[int]) -> list[Row]:
        return self.rig.rows(ids)

    # --- staging

    def stage(
        self, sink: Sink, rows: Sequence[Row], *, batch_id: int, generation: int = 1, partition: int = 0, task_attempt: int = 0
    ) -> tuple[Staged, ...]:
        """Stage `rows` as one task attempt does, in Arrow batches of a few rows."""
        writer = travelled(sink.stager()).open(attempt(batch_id, generation, partition, task_attempt), self.schema)
        for start in range(0, len(rows), 40):
            self.write(writer, sink, rows[start : start + 40])
        return tuple(writer.finish())

    def stage_here(self, sink: Sink, rows: Sequence[Row], *, batch_id: int) -> tuple[Staged, ...]:
        """Stage `rows` as the driver does with a small batch: without a task, in slices of a larger Arrow batch."""
        writer = sink.stager().open(attempt(batch_id, 1, 0, 0), self.schema)
        whole, hashes = self.rig.batch(rows)
        for start in range(0, len(rows), 37):  # so that validity bitmaps begin within a byte
            part = rows[start : start + 37]
            writer.write(whole.slice(start, 37), hashes=hashes.slice(start, 37), accounts=accounts_of(sink, part))
        return tuple(writer.finish())

    def abandoned(self, sink: Sink, rows: Sequence[Row], *, batch_id: int, generation: int = 1, partition: int = 0) -> None:
        """Run an attempt that dies after it wrote."""
        writer = travelled(sink.stager()).open(attempt(batch_id, generation, partition, 0), self.schema)
        self.write(writer, sink, rows)
        writer.abandon()

    def write(self, writer: StageWriter, sink: Sink, rows: Sequence[Row]) -> None:
        """Write rows to a stage writer as the staging pass does."""
        _, batch, hashes = self._batch_of(rows)
        writer.write(batch, hashes=hashes, accounts=accounts_of(sink, rows))

    def _batch_of(self, rows: Sequence[Row]) -> "tuple[Sequence[Row], pa.RecordBatch, pa.UInt64Array]":
        """Return the rows, which are kept so that their identities stay theirs, and what the rig makes of them.

        Several attempts write the same rows, and hashing a few takes as long as staging them.
        """
        made_of = (self.rig.schema, self.rig.row_digest, *map(id, rows))
        if made_of not in self._batches:
            self._batches[made_of] = (rows, *self.rig.batch(rows))
        return self._batches[made_of]

    # --- deciding and publishing

    def decide(self, *attempts: tuple[Sequence[Row], tuple[Staged, ...]], batch_id: int, query_id: QueryId = QUERY) -> Shown:
        """Decide what the attempts staged as batch `batch_id`, at the next position, and record it as the ledger does."""
        shown = self.undecided(*attempts, batch_id=batch_id, position=len(self.decided) + 2, query_id=query_id)
        self.decided.append(shown)
        return shown

    def undecided(
        self,
        *attempts: tuple[Sequence[Row], tuple[Staged, ...]],
        batch_id: int,
        position: int,
        query_id: QueryId = QUERY,
        ledger_id: LedgerId | None = LEDGER_ID,
    ) -> Shown:
        """Return the same as `decide` without recording it, as a decision of another ledger than the bench's."""
        publication = Publication(
            pipeline=PIPELINE,
            sink=self._made[-1].name,
            position=Position(position),
            generation=Generation(1),
            batch=batch_of(batch_id, query_id=query_id),
            staged=tuple(piece for _, staged in attempts for piece in staged),
            schema=self.rig.schema,
            ledger_id=ledger_id,
            row_digest=self.rig.row_digest,
        )
        return Shown(publication=publication, attempts=tuple(tuple(rows) for rows, _ in attempts))

    def deliver(self, sink: Sink, *attempts: Sequence[Row], batch_id: int) -> Shown:
        """Stage one attempt per partition, decide and publish."""
        staged = [(rows, self.stage(sink, rows, batch_id=batch_id, partition=at)) for at, rows in enumerate(attempts)]
        shown = self.decide(*staged, batch_id=batch_id)
        publish(sink, shown.publication)
        return shown

    # --- looking

    def require_shown(self, *batches: Shown) -> None:
        """Raise AssertionError unless a reader sees exactly these batches."""
        require_equal(self.rig.read_back(), self.rig.settle([batch.rows for batch in batches]))

    def verify(self, sink: Sink, *, ledger: Sequence[Shown] | None = None) -> SinkReport:
        decided = self.decided if ledger is None else ledger
        return sink.verify(DecidedBatches([shown.publication for shown in decided]))

    def cut(self, *, generation: int = 1) -> SweepCut:
        """Return the cut with which the coordinator of `generation` sweeps."""
        newest = self.decided[-1].publication if self.decided else None
        same = newest is not None and generation == 1
        return SweepCut(
            pipeline=PIPELINE,
            ledger_id=LEDGER_ID,
            generation=Generation(generation),
            batch_id=newest.batch.batch_id if newest is not None and same else None,
            kept=frozenset(piece.attempt for piece in newest.staged) if newest is not None else frozenset(),
        )

    @property
    def schema(self) -> "pa.Schema":
        """The Arrow schema of the rows that a stage writer gets."""
        return self.rig.batch([])[0].schema


def batch_of(number: int, *, query_id: QueryId = QUERY) -> Batch:
    """Return batch `number` of a query."""
    offsets = OffsetRange(source=SourceName("rows"), start=f"{number}", end=f"{number + 1}")
    return Batch(query_id=query_id, batch_id=BatchId(number), offsets=(offsets,))


def attempt(batch_id: int, generation: int, partition: int, task_attempt: int) -> Attempt:
    """Return a new task attempt."""
    return Attempt(
        generation=Generation(generation),
        batch_id=BatchId(batch_id),
        partition=partition,
        task_attempt=task_attempt,
        nonce=new_nonce(),
    )


def travelled(stager: Stager) -> Stager:
    """Return the stager as a task gets it: pickled and unpickled."""
    arrived: Stager = ForkingPickler.loads(ForkingPickler.dumps(stager))
    return arrived


def accounts_of(sink: Sink, rows: Sequence[Row]) -> "pa.StringArray | None":
    """Return each row's account, chosen by its id; None where the sink has no route."""
    if sink.route_sql is None:
        return None
    accounts = [account for account in sink.accounts if account != ONLY_ACCOUNT]  # that is all tables together
    return pa.array([accounts[row["id"] % len(accounts)] for row in rows], pa.string())


def expected_of(decided: Iterable[Publication]) -> Mapping[AccountName, Totals]:
    """Return the totals that the ledger's summary would have after these decisions."""
    totals: dict[AccountName, Totals] = {}
    for publication in decided:
        for piece in publication.staged:
            totals[piece.account] = totals.get(piece.account, Totals()) + piece.totals
    return totals


def publish(sink: Sink, publication: Publication) -> Published:
    """Publish as the coordinator does: repeat while the sink raises Retryable."""
    pause = threading.Event()
    for _ in range(_TRIES):
        try:
            return sink.publish(publication)
        except Retryable:
            pause.wait(0.01)
    return sink.publish(publication)
