"""The commands on a pipeline from outside its driver, without Spark: status, history, verify, recover, sweep."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, field, replace

from penstock.commit.outcome import Recovered
from penstock.commit.publication import dead_staging, decision_in
from penstock.commit.sink_decisions import LedgerDecisions
from penstock.commit.verification import verify_sink
from penstock.core.model import NEWEST_ROW_DIGEST, Adopted, BatchId, Decided, Entry, Position, RowDigest, SinkName, SinkReport
from penstock.errors import Failed, Usage
from penstock.observe.history import HistoryRow, history
from penstock.observe.status import PlaceState, Status, status, unsettled_batch
from penstock.protocols import Ledger, Sink
from penstock.run.assembly import DeliveryPlan, assemble, checkpoint_of, ledger_of, sinks_of
from penstock.run.kafka_lag import input_lag
from penstock.run.marker_owners import places_of
from penstock.run.preflight import position_of
from penstock.run.runtime import Runtime, coordinator_of, now_ms, opened_by_this_process, prepare, use_row_digest
from penstock.run.signatures import require_own_staging
from penstock.spec.pipeline import without_ledger


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What `penstock verify` found in each sink."""

    sinks: Mapping[SinkName, SinkReport]
    batches: Mapping[Position, BatchId] = field(default_factory=dict)
    """The batch that was decided at each position that a sink was compared as of."""
    unsettled: BatchId | None = None
    """A batch that was decided when the verification began but not compared: some sink did not show all of it then."""
    adopted_at: Position | None = None
    """Where another checkpoint was last adopted: rows decided before it may have been delivered again after it."""

    row_digest: RowDigest = NEWEST_ROW_DIGEST
    """How rows were hashed: as the ledger has it since it began."""

    @property
    def ok(self) -> bool:
        """Whether every sink shows exactly what the ledger decided."""
        return all(report.ok for report in self.sinks.values())


def opened_ledger(plan: DeliveryPlan) -> AbstractContextManager[Ledger]:
    """Open the pipeline's ledger for the duration of a command."""
    return closing(ledger_of(plan))


@contextmanager
def opened_runtime(plan: DeliveryPlan, *, demanded: bool = True) -> Iterator[Runtime]:
    """Open ledger, sinks and checkpoint for an operator's command; unless `demanded`, whatever guarantee the sinks give."""
    runtime = assemble(plan, demanded=demanded)
    try:
        yield runtime
    finally:
        for sink in runtime.sinks:
            sink.close()
        runtime.ledger.close()


def status_of(plan: DeliveryPlan, *, known: tuple[PlaceState, ...] | None = None) -> Status:
    """Return where the pipeline stands, at constant cost: by its ledger, its checkpoint, and a look at each place.

    `known` is what the places said a moment ago; they are not asked again.
    """
    with opened_ledger(plan) as ledger:
        before = ledger.tail()
        checkpoint = position_of(checkpoint_of(plan))
        found = status(pipeline=plan.pipeline, ledger=ledger, checkpoint=checkpoint, before=before)
        if (text := without_ledger(plan.settings)) is not None:
            return replace(found, health="ok", text=text)
        lag = input_lag(plan.settings, ledger, now_ms=now_ms)
        places = places_of(plan, ledger) if known is None else known
        return replace(found, lag=lag.topics, lag_unknown=lag.troubles).with_places(places)


def history_of(plan: DeliveryPlan, *, batch_id: BatchId | None = None, limit: int | None = None) -> Sequence[HistoryRow]:
    """Return the newest `limit` rows of the ledger, newest first; with `batch_id` only that batch's decisions."""
    with opened_ledger(plan) as ledger:
        rows = history(ledger.newest_first(), batch_id=batch_id)
        return [row for row, _ in zip(rows, range(limit or 10**9), strict=False)]


def offsets_of(plan: DeliveryPlan, batch_id: BatchId) -> HistoryRow:
    """Return the newest decision of one batch. Raises Failed if the ledger does not retain it."""
    rows = history_of(plan, batch_id=batch_id, limit=1)
    if not rows:
        raise Failed(
            f"The ledger of {plan.pipeline!r} holds no decision of batch {batch_id}.",
            remedy="`penstock history` lists what it holds.",
        )
    return rows[0]


def verify(plan: DeliveryPlan, *, sink: SinkName | None = None) -> Verification:
    """Read every row of every sink (or of one) and compare with the ledger. Works beside a running driver, too.

    Each sink is compared as of one position of the ledger; what is newer than that is left out.
    """
    with opened_ledger(plan) as ledger:
        chosen = _chosen(sinks_of(plan), sink)
        tail = ledger.tail()
        use_row_digest(chosen, tail)
        found = dict[SinkName, SinkReport]()
        for each in chosen:
            with closing(each):
                found[each.name] = verify_sink(each, LedgerDecisions(ledger, each.name, tail=tail), sleep=time.sleep)
        return Verification(
            sinks=found,
            batches=_batches_at(ledger, [report.as_of for report in found.values()]),
            unsettled=_left_out(ledger, tail, found),
            adopted_at=_adopted_at(ledger, tail),
            row_digest=NEWEST_ROW_DIGEST if tail is None else tail.summary.row_digest,
        )


def _left_out(ledger: Ledger, tail: Entry | None, found: Mapping[SinkName, SinkReport]) -> BatchId | None:
    """Return the newest decided batch if one of its sinks was compared as of an earlier position."""
    newest = None if tail is None or unsettled_batch(tail) is None else newest_decision(ledger, tail)
    if newest is None:
        return None
    decision = decision_in(newest)
    behind = (
        report.as_of is not None and report.as_of < newest.position and decision.of_sink(name) for name, report in found.items()
    )
    return decision.batch.batch_id if any(behind) else None


def _adopted_at(ledger: Ledger, tail: Entry | None) -> Position | None:
    """Return where a checkpoint was last adopted that may have read records again. An adoption that only skipped gaps has not."""
    newest = None if tail is None else tail.summary.adopted_at
    if newest is None or ledger.read(newest) is None:
        return newest
    adoptions = (entry for entry in ledger.newest_first() if isinstance(entry.body, Adopted) and not entry.body.gaps)
    return next((entry.position for entry in adoptions), None)


def _batches_at(ledger: Ledger, positions: Sequence[Position | None]) -> Mapping[Position, BatchId]:
    entries = ((position, ledger.read(position)) for position in set(positions) if position)
    return {
        position: decision_in(entry).batch.batch_id
        for position, entry in entries
        if entry is not None and isinstance(entry.body, Decided)
    }


def _chosen(sinks: Sequence[Sink], name: SinkName | None) -> Sequence[Sink]:
    chosen = [sink for sink in sinks if name in {None, sink.name}]
    if not chosen:
        raise Usage(f"The pipeline has no sink {name!r}.", remedy=f"It has {', '.join(sink.name for sink in sinks)}.")
    return chosen


def recover(plan: DeliveryPlan) -> Recovered:
    """Fence any running driver, publish the newest decision everywhere, sweep, and record that all is published."""
    with opened_runtime(plan) as runtime:
        coordinator = coordinator_of(runtime)
        prepare(runtime, schema=None)
        opened = opened_by_this_process(runtime)
        recovered = coordinator.open(opened)
        coordinator.settle(opened)
        return recovered


def sweep(plan: DeliveryPlan, *, dry_run: bool) -> Sequence[str]:
    """Collect (or only name) staging that can never be decided any more. Harmless beside a running pipeline."""
    with opened_runtime(plan) as runtime:
        tail = runtime.ledger.tail()
        if tail is None:
            return []
        require_own_staging(runtime.ledger, runtime.sinks, pipeline=runtime.pipeline)
        cut = dead_staging(tail, newest_decision(runtime.ledger, tail))
        return [name for sink in runtime.sinks for name in sink.sweep(cut, dry_run=dry_run)]


def newest_decision(ledger: Ledger, tail: Entry) -> Entry | None:
    """Return the entry of the newest decision, None if nothing was decided. Raises Failed if the entry is gone."""
    if tail.summary.decided_at is None:
        return None
    newest = ledger.read(tail.summary.decided_at)
    if newest is None or not isinstance(newest.body, Decided):
        raise Failed("The ledger lacks its newest decision, so nothing can be swept.", remedy="Restore the ledger from a backup.")
    return newest
