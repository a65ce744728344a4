"""A pipeline with two sinks in memory, run by one coordinator after another."""

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, TypeVar

from tenacity import Retrying, stop_after_attempt

from penstock.commit.acts import ActingCoordinator
from penstock.commit.append import with_backoff
from penstock.commit.outcome import Delivered, StagedBatch
from penstock.core.model import (
    Attempt,
    Batch,
    BatchId,
    Generation,
    Nonce,
    OffsetRange,
    Opened,
    PipelineName,
    QueryId,
    SinkName,
    SourceName,
    new_nonce,
)
from penstock.errors import PenstockError, Retryable
from penstock.ledger.log import LogLedger
from penstock.ledger.store import MemoryStore
from penstock.protocols import Ledger
from penstock.testing.simulator.sinks import FilesSink, SteppedSink, TableSink
from penstock.testing.simulator.targets import History, Row, Targets

PIPELINE = PipelineName("flights")
QUERY = QueryId("query")
T = TypeVar("T")
OPENED = Opened(owner="me", checkpoint="c", pipeline_digest="d", sinks=(SinkName("files"), SinkName("table")))


class Steps:
    """Notes what the sinks do and fails where it is told to."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.failing: dict[str, list[PenstockError]] = {}

    def do(self, operation: str, subject: str, act: Callable[[], T]) -> T:
        self.done.append(f"{operation} {subject.partition('/')[0]}")
        errors = self.failing.get(self.done[-1])
        if errors:
            raise errors.pop(0)
        return act()


class Bench:
    """A pipeline with two sinks in memory; every `coordinator` is another run of it."""

    def __init__(self) -> None:
        self.store, self.targets, self.steps = MemoryStore(), Targets(), Steps()
        self.targets.all = (self.targets.files, self.targets.table)
        self.history = History(self.targets)
        self.slept: list[float] = []
        self._clock = count()
        self.watched = Watch(self.store, self.history)

    def ledger(self) -> LogLedger:
        return LogLedger(self.watched, pipeline=PIPELINE)

    def sinks(self) -> tuple[SteppedSink[Any], ...]:
        return (
            FilesSink(self.targets.files, self.history, self.steps),
            TableSink(self.targets.table, self.history, self.steps),
        )

    @property
    def retrying(self) -> Retrying:
        """Tries five times, without waiting: the pauses are in `slept`."""
        return with_backoff(stop_after_attempt(5), self.slept.append)

    def coordinator(
        self, *, ledger: Ledger | None = None, sinks: Sequence[SteppedSink] | None = None, **options: int
    ) -> ActingCoordinator:
        return ActingCoordinator(
            pipeline=PIPELINE,
            ledger=ledger or self.ledger(),
            sinks=self.sinks() if sinks is None else sinks,
            now_ms=self._clock.__next__,
            retrying=self.retrying,
            **options,
        )

    def opened(self) -> ActingCoordinator:
        coordinator = self.coordinator()
        coordinator.open(OPENED)
        return coordinator

    def stage(self, batch: Batch) -> Callable[[Generation], StagedBatch]:
        def staged(generation: Generation) -> StagedBatch:
            attempt = Attempt(
                generation=generation, batch_id=batch.batch_id, partition=0, task_attempt=0, nonce=Nonce(new_nonce())
            )
            rows = (Row(batch.batch_id, int(attempt.nonce, 16)),)
            pieces = tuple(sink.stage(attempt, rows, inline=False) for sink in self.sinks())
            return StagedBatch(pieces=pieces, rows_in=1, schema="{}")

        return staged

    def deliver(self, coordinator: ActingCoordinator, number: int) -> Delivered:
        return coordinator.deliver(batch_of(number), self.stage(batch_of(number)))

    def shown(self) -> list[Counter[int]]:
        return [Counter(row.number for row in target.content()) for target in (self.targets.files, self.targets.table)]


class Watch(MemoryStore):
    """Tells the history what is created, as the simulator's store does."""

    def __init__(self, shared: MemoryStore, history: History) -> None:
        super().__init__()
        self._objects, self._sorted, self._history = shared._objects, shared._sorted, history

    def put_if_absent(self, key: str, data: bytes) -> bool:
        created = super().put_if_absent(key, data)
        if created:
            self._history.created(key, data)
        return created


def batch_of(number: int, *, query: QueryId = QUERY) -> Batch:
    offsets = OffsetRange(source=SourceName("events"), start=str(number) if number else None, end=str(number + 1))
    return Batch(query_id=query, batch_id=BatchId(number), offsets=(offsets,))


def trouble(kind: type[PenstockError] = Retryable) -> PenstockError:
    return kind("It hurts.", remedy="Wait.")
