"""`penstock compare`: where the contents of two pipelines differ, batch by batch, by what their ledgers decided."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any

from penstock.commit.publication import decision_in, standing
from penstock.core.backfill import Backfilled
from penstock.core.model import Adopted, BatchId, Decided, Decision, Entry, PipelineName, Rewound, SinkName, Totals
from penstock.errors import BatchForgotten, Refused, Usage
from penstock.protocols import Ledger
from penstock.run.assembly import DeliveryPlan, ledger_of
from penstock.run.reading import read_table
from penstock.spec.sink import Parquet


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One sink of each pipeline, whose contents are compared."""

    first: SinkName
    second: SinkName


@dataclass(frozen=True, slots=True, kw_only=True)
class RowDifference:
    """One row that the first pipeline delivered `times` more often than the second; less often if it is negative."""

    row: Mapping[str, object]
    times: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchDifference:
    """One batch of which a pair of sinks got different rows. `same_input`: both batches read the same of every source.

    `rows` are some of the rows that differ, where they were asked for and both sinks are of type parquet.
    """

    batch_id: BatchId
    sinks: Pair
    first: Totals
    second: Totals
    same_input: bool
    rows: tuple[RowDifference, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PairTotals:
    """What a pair of sinks got in all compared batches. `columns` are those that only one of both has."""

    sinks: Pair
    first: Totals
    second: Totals
    columns: tuple[str, ...] = ()

    @property
    def same(self) -> bool:
        """Whether both got the same rows, in whatever batches."""
        return (self.first.rows, self.first.digest) == (self.second.rows, self.second.digest)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The batches from `from_batch` up to `to_batch`, which both ledgers have. None: they have no batch in common."""

    first: PipelineName
    second: PipelineName
    from_batch: BatchId | None
    to_batch: BatchId | None
    totals: tuple[PairTotals, ...] = ()
    differences: tuple[BatchDifference, ...] = ()

    @property
    def same(self) -> bool:
        """Whether each pair of sinks got the same rows in all."""
        return all(pair.same for pair in self.totals)


def compare(
    first: DeliveryPlan, second: DeliveryPlan, *, from_batch: BatchId | None, pairs: Sequence[Pair], show_rows: int
) -> Comparison:
    """Do what `Pipeline.compare` describes. Reads the ledgers alone, and with `show_rows` files of batches that differ."""
    chosen = pairs or _common(first, second)
    one, other = (_Decisions.of(plan) for plan in (first, second))
    if one.row_digest and other.row_digest and one.row_digest != other.row_digest:
        raise Refused(
            f"The ledger of {first.pipeline!r} hashes rows by {one.row_digest}, and that of {second.pipeline!r} by "
            f"{other.row_digest}.",
            remedy="Compare the tables by a query of your own.",
        )
    begin = max(one.oldest, other.oldest) if from_batch is None else from_batch
    for plan, found in ((first, one), (second, other)):
        if found.oldest > begin:
            raise BatchForgotten(
                f"The ledger of {plan.pipeline!r} tells of batches from {found.oldest} on, not from {begin} on.",
                remedy=f"Compare from there: `--from-batch {found.oldest}`",
            )
    batches = [batch_id for batch_id in sorted(one.batches.keys() & other.batches.keys()) if batch_id >= begin]
    different = [each for batch_id in batches for pair in chosen for each in _different(batch_id, pair, one, other)]
    return Comparison(
        first=first.pipeline,
        second=second.pipeline,
        from_batch=batches[0] if batches else None,
        to_batch=batches[-1] if batches else None,
        totals=tuple(_totals(pair, batches, one, other) for pair in chosen) if batches else (),
        differences=tuple(_with_rows(different, first, second, at_most=show_rows) if show_rows else different),
    )


def _common(first: DeliveryPlan, second: DeliveryPlan) -> Sequence[Pair]:
    """Return sinks of equal names, or the only sink of each."""
    ones, others = (list(map(SinkName, plan.settings.sinks)) for plan in (first, second))
    common = [Pair(first=name, second=name) for name in ones if name in others]
    if common:
        return common
    if len(ones) == len(others) == 1:
        return [Pair(first=ones[0], second=others[0])]
    raise Usage(
        f"The pipelines have no sink of the same name: {', '.join(ones)} and {', '.join(others)}.",
        remedy=f"Name two: `--sink {ones[0]}={others[0]}`",
    )


def pair_of(text: str, first: DeliveryPlan, second: DeliveryPlan) -> Pair:
    """Return the sinks that `NAME` or `NAME=OTHER` names. Raises Usage if a pipeline has no such sink."""
    one, _, other = text.partition("=")
    for name, plan in ((one, first), (other or one, second)):
        if name not in plan.settings.sinks:
            raise Usage(
                f"The pipeline {plan.pipeline!r} has no sink {name!r}.", remedy=f"It has {', '.join(plan.settings.sinks)}."
            )
    return Pair(first=SinkName(one), second=SinkName(other or one))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Decisions:
    """What a ledger retains of the present checkpoint: each batch's decision, and what backfills gave of it to sinks."""

    batches: Mapping[BatchId, Decision]
    given: Mapping[tuple[BatchId, SinkName], Totals]
    row_digest: str
    """Empty where the ledger is."""

    @classmethod
    def of(cls, plan: DeliveryPlan) -> "_Decisions":
        with closing(ledger_of(plan)) as ledger:
            return cls._read(ledger)

    @classmethod
    def _read(cls, ledger: Ledger) -> "_Decisions":
        tail = ledger.tail()
        entries = list(takewhile(lambda entry: not isinstance(entry.body, Adopted) or entry.body.gaps, ledger.newest_first()))
        decided = [entry for entry in standing(entries) if isinstance(entry.body, Decided)]
        given = dict[tuple[BatchId, SinkName], Totals]()
        for entry in entries:
            if isinstance(entry.body, Backfilled):
                given[_batch_of(entry), entry.body.sink] = decision_in(entry).totals_of(entry.body.sink)
            elif isinstance(entry.body, Rewound):  # a decision that was taken back from others holds what these have
                for sink in entry.body.kept:
                    kept = [one for one in standing(entries, sink) if isinstance(one.body, Decided) and one not in decided]
                    given |= {(_batch_of(one), sink): decision_in(one).totals_of(sink) for one in kept}
        batches = {_batch_of(entry): decision_in(entry) for entry in decided}
        row_digest = "" if tail is None else tail.summary.row_digest.value
        return cls(batches=batches, given=given, row_digest=row_digest)

    @property
    def oldest(self) -> BatchId:
        return min(self.batches, default=BatchId(0))

    def totals(self, batch_id: BatchId, sink: SinkName) -> Totals:
        return self.batches[batch_id].totals_of(sink) + self.given.get((batch_id, sink), Totals())


def _batch_of(entry: Entry) -> BatchId:
    return decision_in(entry).batch.batch_id


def _different(batch_id: BatchId, pair: Pair, one: _Decisions, other: _Decisions) -> Iterator[BatchDifference]:
    first, second = one.totals(batch_id, pair.first), other.totals(batch_id, pair.second)
    if (first.rows, first.digest) != (second.rows, second.digest):
        reads = [[(each.start, each.end, each.content) for each in of.batches[batch_id].batch.offsets] for of in (one, other)]
        yield BatchDifference(batch_id=batch_id, sinks=pair, first=first, second=second, same_input=reads[0] == reads[1])


def _totals(pair: Pair, batches: Sequence[BatchId], one: _Decisions, other: _Decisions) -> PairTotals:
    schemas = [of.batches[batches[-1]].schema_of(sink) for of, sink in ((one, pair.first), (other, pair.second))]
    names, others = ({field["name"] for field in json.loads(schema).get("fields", ())} for schema in schemas)
    return PairTotals(
        sinks=pair,
        first=sum((one.totals(batch_id, pair.first) for batch_id in batches), Totals()),
        second=sum((other.totals(batch_id, pair.second) for batch_id in batches), Totals()),
        columns=tuple(sorted(names ^ others)),
    )


def _with_rows(
    different: Sequence[BatchDifference], first: DeliveryPlan, second: DeliveryPlan, *, at_most: int
) -> Iterator[BatchDifference]:
    for each in different:
        sinks = first.settings.sinks[each.sinks.first], second.settings.sinks[each.sinks.second]
        if not all(isinstance(sink, Parquet) for sink in sinks):
            yield each
            continue
        rows = _rows(first, each.sinks.first, each.batch_id)
        rows.subtract(_rows(second, each.sinks.second, each.batch_id))
        found = [(row, times) for row, times in sorted(rows.items(), key=repr) if times][:at_most]
        yield replace(each, rows=tuple(RowDifference(row=dict(row), times=times) for row, times in found))


def _rows(plan: DeliveryPlan, sink: SinkName, batch_id: BatchId) -> "Counter[tuple[tuple[str, Any], ...]]":
    """Return the rows of a batch as text, so that any two can be compared."""
    table = read_table(plan, sink, None, batch_id, added=True, counted=False).arrow()
    return Counter(
        tuple((name, None if value is None else str(value)) for name, value in row.items()) for row in table.to_pylist()
    )
