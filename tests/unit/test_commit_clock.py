"""Bug 4 of other systems: what was prepared and decided was aborted because it was old. No clock decides anything here."""

from collections import Counter
from collections.abc import Callable
from typing import TypeVar

import pytest

from penstock.commit.append import NO_PAUSE
from penstock.commit.coordinator import Coordinator
from penstock.commit.outcome import StagedBatch
from penstock.core.model import (
    Attempt,
    Batch,
    BatchId,
    Generation,
    Nonce,
    OffsetRange,
    Opened,
    PipelineName,
    Publication,
    Published,
    QueryId,
    SourceName,
    new_nonce,
)
from penstock.errors import NotPublishedYet, Retryable
from penstock.ledger.log import LogLedger
from penstock.ledger.store import MemoryStore
from penstock.testing.simulator.sinks import FilesSink
from penstock.testing.simulator.targets import History, Row, Targets

PIPELINE = PipelineName("flights")
DECADE_MS = 10 * 365 * 24 * 3_600_000
NOW_MS = 1_700_000_000_000
T = TypeVar("T")


class Sink(FilesSink):
    """Files in memory, out of reach while `down`."""

    down = False

    def publish(self, publication: Publication) -> Published:
        if self.down:
            raise Retryable("It is away.", remedy="Wait.")
        return super().publish(publication)


class Steps:
    def do(self, operation: str, subject: str, act: Callable[[], T]) -> T:
        return act()


class Pipeline:
    """One sink in memory; every `start` is another run, at another time."""

    def __init__(self) -> None:
        self.targets, self.store = Targets(), MemoryStore()
        self.sink = Sink(self.targets.files, History(self.targets), Steps())

    def start(self, *, at_ms: int) -> Coordinator:
        ledger = LogLedger(self.store, pipeline=PIPELINE)
        coordinator = Coordinator(pipeline=PIPELINE, ledger=ledger, sinks=[self.sink], now_ms=lambda: at_ms, retrying=NO_PAUSE)
        coordinator.open(Opened(owner="me", checkpoint="c", pipeline_digest="d", sinks=(self.sink.name,)))
        return coordinator

    def deliver(self, coordinator: Coordinator, number: int) -> None:
        offsets = OffsetRange(source=SourceName("events"), start=str(number) if number else None, end=str(number + 1))
        batch = Batch(query_id=QueryId("query"), batch_id=BatchId(number), offsets=(offsets,))
        coordinator.deliver(batch, lambda generation: self._staged(batch.batch_id, generation))

    def _staged(self, batch_id: BatchId, generation: Generation) -> StagedBatch:
        nonce = Nonce(new_nonce())
        attempt = Attempt(generation=generation, batch_id=batch_id, partition=0, task_attempt=0, nonce=nonce)
        piece = self.sink.stage(attempt, (Row(batch_id, int(nonce, 16)),), inline=False)
        self.targets.files.decided[piece.name] = 0
        return StagedBatch(pieces=(piece,), rows_in=1, schema="{}")

    def shown(self) -> Counter[int]:
        return Counter(row.number for row in self.targets.files.content())


@pytest.mark.parametrize("passed_ms", [-DECADE_MS, 0, DECADE_MS])
def test_a_decision_is_published_whatever_the_clock_says_of_its_age(passed_ms: int) -> None:
    """Bug 4: the outage lasted longer than somebody had allowed for, or the clock jumped."""
    pipeline = Pipeline()
    before = pipeline.start(at_ms=NOW_MS)
    pipeline.deliver(before, 0)
    pipeline.sink.down = True
    with pytest.raises(NotPublishedYet):
        pipeline.deliver(before, 1)
    with pytest.raises(NotPublishedYet):
        pipeline.start(at_ms=NOW_MS + passed_ms)
    pipeline.sink.down = False
    after = pipeline.start(at_ms=NOW_MS + 2 * passed_ms)
    assert pipeline.shown() == Counter([0, 1])
    pipeline.deliver(after, 2)
    assert pipeline.shown() == Counter([0, 1, 2])
    assert pipeline.targets.files.staged == {}
