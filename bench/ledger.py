"""Does a batch cost the same after 100,000 entries as after 100? Time and memory of decide + recover, without Spark."""

import statistics
import time
import tracemalloc
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.measuring import SPOILT, Bench, require_content
from bench.result import Case, Table
from penstock.commit.append import NO_PAUSE
from penstock.commit.coordinator import Coordinator
from penstock.commit.outcome import StagedBatch
from penstock.core.model import (
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
from penstock.ledger.open import open_ledger
from penstock.observe.history import history

FEW, MANY = 100, 100_000
BATCHES, OPENINGS = 10, 30
"""A round is so many openings of each ledger in turn, with so many batches after each."""


def measure(bench: Bench) -> Iterator[Table]:
    """A table of what a batch costs, one of what an opening costs, and one of memory."""
    small, large = f"at {FEW} entries", f"at {MANY:,} entries"
    rounds = {kind: _rounds(bench, kind, {small: FEW, large: bench.sized(MANY, 2 * FEW)}) for kind in ("sqlite", "directory")}

    def table(name: str, title: str, unit: str, what: str, note: str = "") -> Table:
        cases = tuple(
            Case(name=kind, figures={way: [getattr(each[way], what) for each in found] for way in (large, small)})
            for kind, found in rounds.items()
        )
        return Table(name=name, title=title, unit=unit, cases=cases, ours=(large,), comparison="tax", note=note)

    yield table(
        "batch",
        f"A batch at {MANY:,} ledger entries against {FEW}: decide, publish nothing",
        "ms",
        "batch_ms",
        f"Retention is switched off, so that all the entries are there. A round is {OPENINGS} openings of "
        f"each ledger in turn with {BATCHES} batches after each.",
    )
    yield table("opening", f"Opening a ledger of {MANY:,} entries against one of {FEW}", "ms", "open_ms")
    yield table("memory", "The same: peak memory of an opening and a batch", "KiB", "peak_kib")


def _rounds(bench: Bench, kind: str, ways: dict[str, int]) -> "list[dict[str, Sample]]":
    writers = {way: _Writer(_place(bench.scratch, kind, entries), spoilt=bench.spoilt) for way, entries in ways.items()}
    for way, writer in writers.items():
        writer.fill(ways[way])
    found = [_round(writers, openings=bench.sized(OPENINGS, 1)) for _ in range(bench.rounds)]
    for writer in writers.values():
        writer.require_every_batch()
    return found


def _place(scratch: Path, kind: str, entries: int) -> str:
    return f"sqlite:///{scratch}/{entries}.db" if kind == "sqlite" else str(scratch / f"{entries}")


def _round(writers: "dict[str, _Writer]", *, openings: int) -> "dict[str, Sample]":
    """Openings in turns: whoever goes first finds the disk as the other left it."""
    samples: dict[str, list[Sample]] = {way: [] for way in writers}
    for turn in range(openings):
        for way in sorted(writers, reverse=turn % 2 == 1):
            samples[way].append(writers[way].sample())
    return {way: Sample.median(found) for way, found in samples.items()}


@dataclass(frozen=True)
class Sample:
    """An opening and some batches after it, or the medians of several."""

    batch_ms: float
    open_ms: float
    peak_kib: float

    @classmethod
    def median(cls, samples: "list[Sample]") -> "Sample":
        """Of each figure by itself."""
        return cls(*(statistics.median(getattr(each, name) for each in samples) for name in cls.__dataclass_fields__))


class Nowhere:
    """A sink that publishes nothing, so that only the ledger is measured."""

    name, home = SinkName("lake"), None

    def publish(self, publication: Publication) -> Published:
        return Published(totals=publication.totals, already=False)

    def sweep(self, cut: object, *, dry_run: bool) -> list[str]:
        return []


class _Writer:
    """Opens the same ledger again and again and appends batches of three small pieces."""

    def __init__(self, place: str, *, spoilt: bool) -> None:
        self._place, self._next, self._spoilt = place, 0, spoilt

    def fill(self, entries: int) -> None:
        coordinator, close = self._open()
        while self._next < entries:
            self._deliver(coordinator)
        close()

    def sample(self) -> Sample:
        """The median batch after an opening, and the peak memory of opening plus a batch."""
        tracemalloc.start()
        started = time.perf_counter()
        coordinator, close = self._open()
        open_ms = 1000 * (time.perf_counter() - started)
        self._deliver(coordinator)
        kib = tracemalloc.get_traced_memory()[1] / 1024
        tracemalloc.stop()
        took = []
        for _ in range(BATCHES):
            started = time.perf_counter()
            self._deliver(coordinator)
            took.append(1000 * (time.perf_counter() - started))
        close()
        return Sample(statistics.median(took), open_ms, kib)

    def require_every_batch(self) -> None:
        """Raise ContentError unless the ledger has every batch once, in its order, with its rows."""
        ledger = open_ledger(self._place, pipeline=PipelineName("bench"))
        found = [
            (row.batch_id, row.sinks[Nowhere.name].rows) for row in history(ledger.newest_first()) if row.batch_id is not None
        ]
        ledger.close()
        require_content(sorted(found), [(number, 3) for number in range(self._next)], writer=self._place)

    def _open(self):  # type: ignore[no-untyped-def]
        ledger = open_ledger(self._place, pipeline=PipelineName("bench"))
        coordinator = Coordinator(
            pipeline=PipelineName("bench"), ledger=ledger, sinks=(Nowhere(),), now_ms=lambda: 0, retrying=NO_PAUSE, retained=10**9
        )
        coordinator.open(Opened(owner="bench", checkpoint="", pipeline_digest="", sinks=()))
        return coordinator, ledger.close

    def _deliver(self, coordinator: Coordinator) -> None:
        number = self._next
        rows = 0 if self._spoilt and number == SPOILT else 1
        offsets = OffsetRange(source=SourceName("s"), start=str(number - 1) if number else None, end=str(number))
        batch = Batch(query_id=QueryId("q"), batch_id=BatchId(number), offsets=(offsets,))
        delivered = coordinator.deliver(batch, lambda generation: _staged(generation, number, rows))
        assert not delivered.already
        self._next += 1


def _staged(generation: Generation, number: int, rows: int) -> StagedBatch:
    pieces = tuple(
        Staged(
            sink=SinkName("lake"),
            account=AccountName(f"account{index}"),
            name=f"part-{number}-{index}.parquet",
            attempt=f"g{generation}-b{number}-p0-t0-0123456789abcdef",
            totals=Totals(rows=rows, files=1, size_bytes=1000, digest=number),
        )
        for index in range(3)
    )
    return StagedBatch(pieces=pieces, rows_in=3, schema="{}")
