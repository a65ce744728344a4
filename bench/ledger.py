"""Does a batch cost the same after 100,000 entries as after 100? Time and memory of decide + recover, without Spark."""

import time
import tracemalloc
from dataclasses import dataclass
from pathlib import Path

from bench.table import Table, median, ratio
from penstock.commit.coordinator import Coordinator
from penstock.commit.outcome import StagedBatch
from penstock.ledger.open import open_ledger
from penstock.model import (
    AccountName,
    Batch,
    BatchId,
    Generation,
    OffsetRange,
    Opened,
    PipelineName,
    Publication,
    Published,
    QueryId,
    SinkName,
    SourceName,
    Staged,
    Totals,
)

FEW, MANY, SAMPLE, ROUNDS = 100, 100_000, 10, 200


def measure(scratch: Path) -> list[Table]:
    """One row per kind of ledger."""
    rows = []
    for kind in ("sqlite", "directory"):
        few, many = (_Writer(_place(scratch, kind, entries)) for entries in (FEW, MANY))
        few.fill(FEW)
        many.fill(MANY)
        rows.append([kind, *_compare(few, many)])
    return [
        Table(
            f"A batch with {FEW} against {MANY:,} ledger entries (decide + publish nothing, milliseconds; opening; peak memory)",
            ["ledger", f"batch at {FEW}", f"batch at {MANY:,}", "ratio", "opening at both", "peak KiB at both"],
            rows,
            "Sampled in turns. Retention is switched off, so that all the entries are there.",
        )
    ]


def _place(scratch: Path, kind: str, entries: int) -> str:
    return f"sqlite:///{scratch}/{entries}.db" if kind == "sqlite" else str(scratch / f"{entries}")


def _compare(few: "_Writer", many: "_Writer") -> list[str]:
    samples = [_in_turns(few, many, few_first=number % 2 == 0) for number in range(ROUNDS)]
    few_ms, many_ms = (median([ms for round_ in samples for ms in round_[which].batch_ms]) for which in (0, 1))
    opening = [median([round_[which].open_ms for round_ in samples]) for which in (0, 1)]
    kib = [median([round_[which].peak_kib for round_ in samples]) for which in (0, 1)]
    return [
        f"{few_ms:.3f}",
        f"{many_ms:.3f}",
        ratio(many_ms / few_ms),
        f"{opening[0]:.1f} / {opening[1]:.1f}",
        f"{kib[0]:.0f} / {kib[1]:.0f}",
    ]


def _in_turns(few: "_Writer", many: "_Writer", *, few_first: bool) -> "tuple[Sample, Sample]":
    """Whoever goes first finds the disk as the other left it."""
    if few_first:
        return few.sample(), many.sample()
    seconds = many.sample()
    return few.sample(), seconds


@dataclass(frozen=True)
class Sample:
    """One opening and some batches."""

    batch_ms: list[float]
    open_ms: float
    peak_kib: float


class Nowhere:
    """A sink that publishes nothing, so that only the ledger is measured."""

    name, home = SinkName("lake"), None

    def publish(self, publication: Publication) -> Published:
        return Published(totals=publication.totals, already=False)

    def sweep(self, cut: object, *, dry_run: bool) -> list[str]:
        return []


class _Writer:
    """Opens the same ledger again and again and appends batches of three small pieces."""

    def __init__(self, place: str) -> None:
        self._place, self._next = place, 0

    def fill(self, entries: int) -> None:
        coordinator, close = self._open()
        while self._next < entries:
            self._deliver(coordinator)
        close()

    def sample(self) -> Sample:
        """Some batches after an opening, and the peak memory of opening plus a batch."""
        tracemalloc.start()
        started = time.perf_counter()
        coordinator, close = self._open()
        open_ms = 1000 * (time.perf_counter() - started)
        self._deliver(coordinator)
        kib = tracemalloc.get_traced_memory()[1] / 1024
        tracemalloc.stop()
        took = []
        for _ in range(SAMPLE):
            started = time.perf_counter()
            self._deliver(coordinator)
            took.append(1000 * (time.perf_counter() - started))
        close()
        return Sample(took, open_ms, kib)

    def _open(self):  # type: ignore[no-untyped-def]
        ledger = open_ledger(self._place, pipeline=PipelineName("bench"))
        coordinator = Coordinator(
            pipeline=PipelineName("bench"), ledger=ledger, sinks=(Nowhere(),), now_ms=lambda: 0, sleep=time.sleep, retained=10**9
        )
        coordinator.open(Opened(owner="bench", checkpoint="", pipeline_digest="", sinks=()))
        return coordinator, ledger.close

    def _deliver(self, coordinator: Coordinator) -> None:
        number = self._next
        offsets = OffsetRange(source=SourceName("s"), start=str(number - 1) if number else None, end=str(number))
        batch = Batch(query_id=QueryId("q"), batch_id=BatchId(number), offsets=(offsets,))
        delivered = coordinator.deliver(batch, lambda generation: _staged(generation, number))
        assert not delivered.already
        self._next += 1


def _staged(generation: Generation, number: int) -> StagedBatch:
    pieces = tuple(
        Staged(
            sink=SinkName("lake"),
            account=AccountName(f"account{index}"),
            name=f"part-{number}-{index}.parquet",
            attempt=f"g{generation}-b{number}-p0-t0-0123456789abcdef",
            totals=Totals(rows=1, files=1, size_bytes=1000, digest=number),
        )
        for index in range(3)
    )
    return StagedBatch(pieces=pieces, rows_in=3, schema="{}")
