"""What people do to a pipeline from outside its driver, without Spark: status, history, verify, recover, sweep."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace

from penstock.commit.outcome import Recovered
from penstock.commit.publication import dead_staging, decision_in, publications
from penstock.errors import Failed, PenstockError, Usage
from penstock.model import AccountName, BatchId, Decided, Entry, Publication, SinkName, SinkReport, Totals
from penstock.observe.history import HistoryRow, history
from penstock.observe.status import Status, status, unsettled_batch
from penstock.protocols import Ledger, Remembering, Sink
from penstock.run.assembly import DeliveryPlan, assemble, checkpoint_of, ledger_of, sinks_of
from penstock.run.kafka_lag import input_lag
from penstock.run.parts import Parts, coordinator_of, now_ms, opened_by_this_process, prepare
from penstock.run.preflight import position_of
from penstock.run.signatures import require_own_staging


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What `penstock verify` found, sink by sink."""

    sinks: Mapping[SinkName, SinkReport]
    unsettled: BatchId | None = None
    """Decided, and a sink that was looked at does not show all of it yet: it may be all that is missing."""

    @property
    def ok(self) -> bool:
        """Whether every sink shows exactly what the ledger decided."""
        return all(report.ok for report in self.sinks.values())


@contextmanager
def reading(plan: DeliveryPlan) -> Iterator[Ledger]:
    """The pipeline's ledger for the duration of a command."""
    ledger = ledger_of(plan)
    try:
        yield ledger
    finally:
        ledger.close()


@contextmanager
def acting(plan: DeliveryPlan, *, demanded: bool = True) -> Iterator[Parts]:
    """Ledger, sinks and checkpoint for an operator's act; unless `demanded`, whatever guarantee the sinks give."""
    parts = assemble(plan, demanded=demanded)
    try:
        yield parts
    finally:
        for sink in parts.sinks:
            sink.close()
        parts.ledger.close()


def status_of(plan: DeliveryPlan) -> Status:
    """Where the pipeline stands; constant cost."""
    with reading(plan) as ledger:
        found = status(
            pipeline=plan.pipeline,
            ledger=ledger,
            checkpoint=position_of(checkpoint_of(plan)),
        )
        lag = input_lag(plan.settings, ledger, now_ms=now_ms)
        return replace(found, lag=lag.topics, lag_unknown=lag.troubles)


def history_of(plan: DeliveryPlan, *, batch_id: BatchId | None = None, limit: int | None = None) -> Sequence[HistoryRow]:
    """The newest `limit` rows of the ledger, newest first; with `batch_id` only that batch's decisions."""
    with reading(plan) as ledger:
        rows = history(ledger.newest_first(), batch_id=batch_id)
        return [row for row, _ in zip(rows, range(limit or 10**9), strict=False)]


def offsets_of(plan: DeliveryPlan, batch_id: BatchId) -> HistoryRow:
    """The newest decision of one batch. Raises Failed if the ledger does not retain it."""
    rows = history_of(plan, batch_id=batch_id, limit=1)
    if not rows:
        raise Failed(
            f"The ledger of {plan.pipeline!r} holds no decision of batch {batch_id}.",
            remedy="`penstock history` lists what it holds.",
        )
    return rows[0]


def verify(plan: DeliveryPlan, *, sink: SinkName | None = None) -> Verification:
    """Read every row of every sink (or of one) and compare with the ledger. A running pipeline may be ahead of the answer."""
    with reading(plan) as ledger:
        chosen = _chosen(sinks_of(plan), sink)
        tail = ledger.tail()
        newest = None if tail is None or unsettled_batch(tail) is None else newest_decision(ledger, tail)
        shown, found = True, dict[SinkName, SinkReport]()
        for each in chosen:
            with closing(each):
                shown = shown and (newest is None or _shows(each, newest))
                found[each.name] = _verify(each, ledger, tail)
        return Verification(sinks=found, unsettled=None if shown else unsettled_batch(tail))


def _shows(sink: Sink, newest: Entry) -> bool:
    """Whether the sink's own markers say that it shows the newest decision."""
    held = {piece.account for piece in decision_in(newest).of_sink(sink.name)}
    if not isinstance(sink, Remembering) or not held <= set(sink.accounts):
        return not held
    try:
        return all((sink.remembers(account, pipeline=newest.pipeline) or 0) >= newest.position for account in held)
    except PenstockError:  # what is wrong there is told by the look at the content
        return False


def _verify(sink: Sink, ledger: Ledger, tail: Entry | None) -> SinkReport:
    expected: Mapping[AccountName, Totals] = {} if tail is None else tail.summary.totals.get(sink.name, {})
    return sink.verify(expected=expected, known=_known(ledger, tail, sink.name))


def _known(ledger: Ledger, tail: Entry | None, sink: SinkName) -> Iterator[Publication]:
    entries = (entry for entry in ledger.newest_first() if tail is not None and entry.position <= tail.position)
    return publications(entries, sink)


def _chosen(sinks: Sequence[Sink], name: SinkName | None) -> Sequence[Sink]:
    chosen = [sink for sink in sinks if name in {None, sink.name}]
    if not chosen:
        raise Usage(f"The pipeline has no sink {name!r}.", remedy=f"It has {', '.join(sink.name for sink in sinks)}.")
    return chosen


def recover(plan: DeliveryPlan) -> Recovered:
    """Fence whoever runs, publish the newest decision everywhere, sweep, and record that all is published."""
    with acting(plan) as parts:
        coordinator = coordinator_of(parts)
        prepare(parts, schema=None)
        opened = opened_by_this_process(parts)
        recovered = coordinator.open(opened)
        coordinator.settle(opened)
        return recovered


def sweep(plan: DeliveryPlan, *, dry_run: bool) -> Sequence[str]:
    """Collect (or only name) staging that can never be decided any more; harmless beside a running pipeline."""
    with acting(plan) as parts:
        tail = parts.ledger.tail()
        if tail is None:
            return []
        require_own_staging(parts.ledger, parts.sinks, pipeline=parts.pipeline)
        cut = dead_staging(tail, newest_decision(parts.ledger, tail))
        return [name for sink in parts.sinks for name in sink.sweep(cut, dry_run=dry_run)]


def newest_decision(ledger: Ledger, tail: Entry) -> Entry | None:
    """The entry of the newest decision, None if nothing was decided. Raises Failed if it is gone."""
    if tail.summary.decided_at is None:
        return None
    newest = ledger.read(tail.summary.decided_at)
    if newest is None or not isinstance(newest.body, Decided):
        raise Failed("The ledger lacks its newest decision, so nothing can be swept.", remedy="Restore the ledger from a backup.")
    return newest
