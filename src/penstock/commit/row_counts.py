"""Where the rows of a pipeline went, by the ledger and the quarantine: rows in = rows out + put aside + dropped.

Each decision tells how many rows the transform gave, and what each sink got. What the quarantine got is counted in its files. So
a row that was lost, or counted twice, between the transform and a sink shows.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from penstock.commit.publication import decision_in, standing
from penstock.core.backfill import Backfilled
from penstock.core.bad_record import NAME
from penstock.core.model import BatchId, Decided, Entry, SinkName, SourceName
from penstock.core.replay import Replayed

_Name = TypeVar("_Name", SinkName, SourceName)


@dataclass(frozen=True, slots=True, kw_only=True)
class AsideRows:
    """The rows that one decision brought into the quarantine: by their source or by the sink that could not take them.

    `again`: those of them that were replayed and put aside again. `receipts` of replayed records are no such rows.
    """

    sources: Mapping[SourceName, int] = field(default_factory=dict)
    sinks: Mapping[SinkName, int] = field(default_factory=dict)
    receipts: int = 0
    again: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkRows:
    """The rows that a sink was to get, of batches in which it takes all: `rows_out` got there, `aside` are in the quarantine."""

    rows_in: int = 0
    rows_out: int = 0
    aside: int = 0

    @property
    def ok(self) -> bool:
        return self.rows_in == self.rows_out + self.aside  # I1, I2

    def __add__(self, other: "SinkRows") -> "SinkRows":
        return SinkRows(
            rows_in=self.rows_in + other.rows_in, rows_out=self.rows_out + other.rows_out, aside=self.aside + other.aside
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RowCounts:
    """The rows of the batches that the ledger retains, and of its replays.

    `first` and `last` are the batches counted, None if there are none. `read`: rows of each source whose number is known for all
    of them. `dropped` and `aside`: of each source, by batches alone; `aside_by_sink`: rows that sinks could not take. `rows_out`:
    what the transform gave. `replays`, of `replayed` records, gave `replayed_rows`, and put `again` records aside once more.
    `waiting` records of these are in the quarantine and not replayed. `unknown`: decisions whose files of the quarantine are not
    there, or that are not published yet; they are left out of all sums.
    """

    first: BatchId | None = None
    last: BatchId | None = None
    read: Mapping[SourceName, int] = field(default_factory=dict)
    dropped: Mapping[SourceName, int] = field(default_factory=dict)
    aside: Mapping[SourceName, int] = field(default_factory=dict)
    aside_by_sink: Mapping[SinkName, int] = field(default_factory=dict)
    rows_out: int = 0
    sinks: Mapping[SinkName, SinkRows] = field(default_factory=dict)
    replays: int = 0
    replayed: int = 0
    replayed_rows: int = 0
    again: int = 0
    waiting: int = 0
    unknown: int = 0
    wrong: tuple[tuple[BatchId, SinkName], ...] = ()
    """Batches of which a sink has other rows than it was to get, with that sink."""

    @property
    def ok(self) -> bool:
        """Whether no row is missing or too many, as far as the number is known."""
        return not self.wrong and all(self.to_transform(source) >= 0 for source in self.read)

    def to_transform(self, source: SourceName) -> int:
        """Return how many rows of a source the transform got, of those that were read."""
        return self.read[source] - self.dropped.get(source, 0) - self.aside.get(source, 0)


def count_rows(
    newest_first: Iterable[Entry], aside_of: Callable[[Entry], AsideRows | None], *, counted: Collection[SinkName]
) -> RowCounts:
    """Return the counts of the entries of a ledger, which come from its tail backwards.

    `aside_of` returns what a decision brought into the quarantine, None where that cannot be seen. `counted`: the sinks that
    stage each row they are given.
    """
    decided = [entry for entry in standing(newest_first) if isinstance(entry.body, Decided | Backfilled | Replayed)]
    found = [(entry, None if NAME in entry.summary.ahead else aside_of(entry)) for entry in reversed(decided)]
    known = [(entry, aside) for entry, aside in found if aside is not None]
    batches = [(entry, aside) for entry, aside in known if isinstance(entry.body, Decided)]
    sinks, wrong = dict[SinkName, SinkRows](), list[tuple[BatchId, SinkName]]()
    for entry, aside in known:
        for sink, rows in _of_sinks(entry, aside, counted):
            sinks[sink] = sinks.get(sink, SinkRows()) + rows
            wrong += [] if rows.ok else [(decision_in(entry).batch.batch_id, sink)]
    numbers = [decision_in(entry).batch.batch_id for entry, _ in batches]
    replays = [(entry.body, aside) for entry, aside in known if isinstance(entry.body, Replayed)]
    return RowCounts(
        first=min(numbers, default=None),
        last=max(numbers, default=None),
        read=_read(batches),
        dropped=_sums(each for entry, _ in batches for each in _dropped(entry)),
        aside=_sums(each for _, aside in batches for each in aside.sources.items()),
        aside_by_sink=_sums(each for _, aside in known for each in aside.sinks.items()),
        rows_out=sum(decision_in(entry).rows_in for entry, _ in batches),
        sinks=sinks,
        replays=len(replays),
        replayed=sum(body.records for body, _ in replays),
        replayed_rows=sum(body.decision.rows_in for body, _ in replays),
        again=sum(aside.again for _, aside in replays),
        waiting=sum(sum(aside.sources.values()) + sum(aside.sinks.values()) - aside.receipts for _, aside in known),
        unknown=len(found) - len(known),
        wrong=tuple(wrong),
    )


def _dropped(entry: Entry) -> Iterable[tuple[SourceName, int]]:
    return ((source, sum(rules.values())) for source, rules in decision_in(entry).dropped.items())


def _of_sinks(entry: Entry, aside: AsideRows, counted: Collection[SinkName]) -> Iterable[tuple[SinkName, SinkRows]]:
    """Yield the rows of each sink that takes all rows of the batch, and took part in it."""
    if isinstance(entry.body, Replayed):  # some of its rows are for one sink alone
        return
    decision, body = decision_in(entry), entry.body
    own = {body.sink} if isinstance(body, Backfilled) else counted
    for sink in own:
        staged = decision.of_sink(sink)
        took_part = staged or aside.sinks.get(sink)
        if sink in counted and sink not in decision.schemas and sink not in entry.summary.ahead and took_part:
            rows_out = decision.totals_of(sink).rows
            yield sink, SinkRows(rows_in=decision.rows_in, rows_out=rows_out, aside=aside.sinks.get(sink, 0))


def _read(batches: Sequence[tuple[Entry, AsideRows]]) -> Mapping[SourceName, int]:
    """Return the rows of the sources that all batches count."""
    if not batches:
        return {}
    counts = [decision_in(entry).rows_read for entry, _ in batches]
    return {source: sum(each[source] for each in counts) for source in counts[0] if all(source in each for each in counts)}


def _sums(parts: Iterable[tuple[_Name, int]]) -> "Counter[_Name]":
    sums = Counter[_Name]()
    for name, rows in parts:
        sums[name] += rows
    return sums


def brought(entry: Entry) -> Sequence[str]:
    """Return the names of the quarantine's files that a decision brought."""
    return [piece.name for piece in decision_in(entry).of_sink(NAME)]
