"""The commands on a pipeline from outside its driver, without Spark: status, history, verify, recover, sweep."""

import getpass
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import islice

from penstock.commit.acts import ActingCoordinator
from penstock.commit.outcome import Recovered
from penstock.commit.publication import (
    batch_at,
    dead_staging,
    decided_entry,
    decision_in,
    publication_of,
    sinks_apart,
    waiting_entries,
)
from penstock.commit.row_counts import RowCounts
from penstock.commit.verification import LedgerDecisions, verify_sink, verify_sink_since
from penstock.core.model import (
    NEWEST_ROW_DIGEST,
    Adopted,
    BatchId,
    Decided,
    Entry,
    Position,
    RowDigest,
    SinkName,
    SinkReport,
    SinkTotals,
    Summary,
)
from penstock.errors import Failed, PenstockError, Refused, Usage
from penstock.observe.history import HistoryRow, history
from penstock.observe.status import unsettled_batch
from penstock.protocols import HasMarker, Ledger, Sink
from penstock.run.assembly import DeliveryPlan, assemble, ledger_of, sinks_of
from penstock.run.continuation import Adoption, plan_adoption
from penstock.run.ledger_match import ledger_mismatch, require_decided, require_own_staging, use_tables
from penstock.run.runtime import Runtime, coordinator_of, opened_by_this_process, prepare, use_row_digest


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What `penstock verify` found in each sink."""

    sinks: Mapping[SinkName, SinkReport]
    errors: Mapping[SinkName, PenstockError] = field(default_factory=dict)
    """The sinks that could not be compared, and why; never all of them."""
    batches: Mapping[Position, BatchId] = field(default_factory=dict)
    """The batch that was decided at each position that a sink was compared as of."""
    unsettled: BatchId | None = None
    """A batch that was decided when the verification began but not compared: some sink did not show all of it then."""
    replaying: Position | None = None
    """Where records of the quarantine were replayed that were not compared: some sink did not show all of them then."""
    adopted_at: Position | None = None
    """Where another checkpoint was last adopted: rows decided before it may have been delivered again after it."""

    row_digest: RowDigest = NEWEST_ROW_DIGEST
    """How rows were hashed: by the kind of digest that was fixed when the ledger began."""
    removed: "Removed | None" = None
    """What operators accepted as removed on purpose: it was not expected. None if nothing was."""
    since: BatchId | None = None
    """Only what was decided after this batch was compared; None for everything."""
    rows: RowCounts | None = None
    """Where the rows went; None for a single sink, with `since`, and where the pipeline neither drops rows nor puts any aside."""
    other_ledger: str | None = None
    """What shows that another ledger filled a sink that differs, and what to do; None if this one filled them all."""

    @property
    def ok(self) -> bool:
        """Whether every sink shows exactly what the ledger decided, and no row is unaccounted for."""
        return not self.errors and not self.differs

    @property
    def differs(self) -> bool:
        """Whether a sink that was compared shows something else than what the ledger decided, or a row is unaccounted for."""
        return not (all(report.ok for report in self.sinks.values()) and (self.rows is None or self.rows.ok))


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """What was removed on purpose from each account; the newest act is at `position`, its time None if no longer retained."""

    totals: SinkTotals
    position: Position
    accepted_at_ms: int | None

    @staticmethod
    def of(ledger: Ledger, tail: Entry | None) -> "Removed | None":
        """Return what the ledger up to `tail` says, None if nothing was removed on purpose."""
        position = None if tail is None else tail.summary.removed_at
        if tail is None or position is None:
            return None
        act = ledger.read(position)
        return Removed(totals=tail.summary.removed, position=position, accepted_at_ms=None if act is None else act.written_at_ms)


def history_of(plan: DeliveryPlan, *, batch_id: BatchId | None = None, limit: int | None = None) -> Sequence[HistoryRow]:
    """Return the newest `limit` rows of the ledger, newest first; with `batch_id` only that batch's decisions."""
    with closing(ledger_of(plan)) as ledger:
        return list(islice(history(ledger.newest_first(), batch_id=batch_id), limit))


def offsets_of(plan: DeliveryPlan, batch_id: BatchId) -> HistoryRow:
    """Return the newest decision of one batch. Raises Failed if the ledger does not retain it."""
    rows = history_of(plan, batch_id=batch_id, limit=1)
    if not rows:
        raise Failed(
            f"The ledger of {plan.pipeline!r} holds no decision of batch {batch_id}.",
            remedy="`penstock history` lists what it holds.",
        )
    return rows[0]


def verify(plan: DeliveryPlan, *, sink: SinkName | None = None, since: BatchId | None = None) -> Verification:
    """Read every row of every sink (or of one) and compare with the ledger. Works beside a running driver, too.

    Each sink is compared as of one position of the ledger; what is newer than that is left out. With `since` only what was
    decided after that batch is read, by sinks that can. Raises Failed if the ledger does not retain it, and the error of a
    sink if none could be compared.
    """
    from penstock.run.row_counts import row_counts

    with closing(ledger_of(plan)) as ledger:
        chosen = chosen_sinks(plan, sink)
        tail = ledger.tail()
        after = None if since is None else _retained(ledger, since)
        use_row_digest(chosen, tail)
        use_tables(chosen, tail)
        found, errors = _reports(chosen, ledger, tail, after)
        return Verification(
            sinks=found,
            errors=errors,
            batches={
                position: batch_id
                for position in {report.as_of for report in found.values()}
                if position and (batch_id := batch_at(ledger, position)) is not None
            },
            unsettled=_left_out(ledger, tail, found),
            replaying=_replay_left_out(ledger, tail, found),
            adopted_at=_adopted_at(ledger, tail),
            row_digest=NEWEST_ROW_DIGEST if tail is None else tail.summary.row_digest,
            removed=Removed.of(ledger, tail),
            since=since,
            rows=row_counts(plan, ledger) if sink is None and since is None else None,
            other_ledger=_other_ledger(
                ledger, [each for each in chosen if each.name in found and not found[each.name].ok], plan=plan
            ),
        )


def _reports(
    chosen: Sequence[Sink], ledger: Ledger, tail: Entry | None, after: Entry | None
) -> tuple[Mapping[SinkName, SinkReport], Mapping[SinkName, PenstockError]]:
    """Return the reports of the sinks, and the errors of those that could not be compared. Raises the last one if none could."""
    found, errors = dict[SinkName, SinkReport](), dict[SinkName, PenstockError]()
    for each in chosen:
        decisions = LedgerDecisions(ledger, each.name, tail=tail)
        try:
            with closing(each):
                if after is None:
                    found[each.name] = verify_sink(each, decisions, sleep=time.sleep)
                else:
                    last = publication_of(after, each.name, ledger_id=after.summary.ledger_id)
                    found[each.name] = verify_sink_since(each, decisions, last, sleep=time.sleep)
        except PenstockError as error:
            errors[each.name] = error
            if len(errors) == len(chosen):
                raise
    return found, errors


def _other_ledger(ledger: Ledger, differing: Sequence[Sink], *, plan: DeliveryPlan) -> str | None:
    """Return what shows that another ledger filled one of the sinks: then not their rows have to be mended, but the ledger."""
    for sink in differing:
        if not isinstance(sink, HasMarker):
            continue
        with closing(sink):
            for account in sink.accounts:
                with suppress(Refused):  # what is gone, or has no marker that can be read, is a problem of the sink already
                    mark = sink.high_water_mark(account, pipeline=plan.pipeline)
                    found = None if mark is None else ledger_mismatch(mark, ledger, sink=sink.name, account=account)
                    if found is not None:
                        return f"{found.error.message} {found.error.remedy}"
    return None


def _retained(ledger: Ledger, batch_id: BatchId) -> Entry:
    """Return the newest decision of a batch. Reads every newer entry. Raises Failed if it is not retained."""
    entry = decided_entry(ledger, batch_id)
    if entry is None:
        raise Failed(
            f"The ledger at {ledger.location} holds no decision of batch {batch_id} since the last adoption.",
            remedy="`penstock history` lists what it holds; without --since everything is compared.",
        )
    return entry


def _left_out(ledger: Ledger, tail: Entry | None, found: Mapping[SinkName, SinkReport]) -> BatchId | None:
    """Return the newest decided batch if one of its sinks was compared as of an earlier position."""
    newest = None if tail is None or unsettled_batch(tail) is None else newest_decision(ledger, tail)
    if newest is None:
        return None
    return decision_in(newest).batch.batch_id if _is_behind(newest, found) else None


def _replay_left_out(ledger: Ledger, tail: Entry | None, found: Mapping[SinkName, SinkReport]) -> Position | None:
    """Return where a replay is that is not recorded as published, if one of its sinks was compared as of an earlier position."""
    at = None if tail is None else tail.summary.replaying_at
    replay = None if at is None else ledger.read(at)
    return at if replay is not None and _is_behind(replay, found) else None


def _is_behind(entry: Entry, found: Mapping[SinkName, SinkReport]) -> bool:
    """Return whether a sink that an entry has rows for was compared as of an earlier position."""
    decision = decision_in(entry)
    behind = (
        report.as_of is not None and report.as_of < entry.position and decision.of_sink(name) for name, report in found.items()
    )
    return any(behind)


def _adopted_at(ledger: Ledger, tail: Entry | None) -> Position | None:
    """Return where a checkpoint was last adopted that may have read records again. An adoption that only skipped gaps has not."""
    newest = None if tail is None else tail.summary.adopted_at
    if newest is None or ledger.read(newest) is None:
        return newest
    adoptions = (entry for entry in ledger.newest_first() if isinstance(entry.body, Adopted) and not entry.body.gaps)
    return next((entry.position for entry in adoptions), None)


def chosen_sinks(plan: DeliveryPlan, name: SinkName | None) -> Sequence[Sink]:
    """Return the pipeline's sinks, or the one of that name. Raises Usage if there is none."""
    sinks = sinks_of(plan)
    chosen = [sink for sink in sinks if name in {None, sink.name}]
    if not chosen:
        raise Usage(f"The pipeline has no sink {name!r}.", remedy=f"It has {', '.join(sink.name for sink in sinks)}.")
    return chosen


def recover(plan: DeliveryPlan) -> Recovered:
    """Fence any running driver, publish the newest decision everywhere, sweep, and record that all is published."""
    with closing(assemble(plan)) as runtime, coordinating(runtime) as coordinator:
        prepare(runtime, schema=None)
        opened = opened_by_this_process(runtime)
        recovered = coordinator.open(opened)
        coordinator.settle(opened)
        return recovered


def adopt(plan: DeliveryPlan, *, reason: str, yes: bool, txn_app_id: str | None = None) -> Adoption:
    """State what adopting means; with `yes` fence, publish what is decided, and record the adoption. Raises CheckpointDamaged.

    Nothing is recorded if the checkpoint continues the ledger once every other run is fenced. `txn_app_id`: the application as
    which another program delivered batches of the checkpoint into Delta tables. Raises Refused if one of them came twice.
    """
    with closing(assemble(plan)) as runtime:
        tail = runtime.ledger.tail()
        adoption = plan_adoption(runtime, Summary() if tail is None else tail.summary, txn_app_id)
        if not adoption.needed:
            return adoption
        if not yes:
            require_own_places(runtime)  # else the act would be announced that `yes` refuses
            return adoption
        with coordinating(runtime) as coordinator:
            prepare(runtime, schema=None)
            coordinator.open(opened_by_this_process(runtime))
            # I2: a run that was alive may have decided batches meanwhile
            adoption = plan_adoption(runtime, coordinator.summary, txn_app_id)
            if adoption.needed:
                coordinator.adopt(adoption.recorded(reason=reason, operator=getpass.getuser()))
        return replace(adoption, done=adoption.needed)


def require_own_places(runtime: Runtime) -> None:
    """Raise Refused if another ledger or pipeline staged in a place or filled it, without preparing any.

    Places that do not tell pass.
    """
    tail = runtime.ledger.tail()
    apart = frozenset[SinkName]() if tail is None else sinks_apart(tail.summary)
    for sink in (sink for sink in runtime.sinks if sink.name not in apart):
        try:
            require_own_staging(runtime.ledger, [sink], pipeline=runtime.pipeline)
            require_decided(runtime.ledger, (sink,), pipeline=runtime.pipeline, markers={})
        except Refused:
            raise
        except PenstockError:  # the act itself says what is wrong there
            continue


@contextmanager
def coordinating(runtime: Runtime, of: type[ActingCoordinator] = ActingCoordinator) -> Iterator[ActingCoordinator]:
    """Yield a coordinator. At Ctrl-C nothing is tried again: sinks publish in threads, which the process would wait for."""
    stopping = threading.Event()

    def pause(seconds: float) -> None:
        stopping.wait(seconds)

    try:
        yield coordinator_of(runtime, sleep=pause, stop_wanted=stopping.is_set, of=of)
    finally:
        stopping.set()


def sweep(plan: DeliveryPlan, *, dry_run: bool) -> Sequence[str]:
    """Collect (or only name) staging that can never be decided any more. Harmless beside a running pipeline."""
    with closing(assemble(plan)) as runtime:
        tail = runtime.ledger.tail()
        if tail is None:
            return []
        apart = sinks_apart(tail.summary)  # what a backfill beside the driver stages there may yet be decided
        sinks = [sink for sink in runtime.sinks if sink.name not in apart]
        require_own_staging(runtime.ledger, sinks, pipeline=runtime.pipeline)
        waiting = waiting_entries(runtime.ledger, tail.summary)
        cut = dead_staging(tail, newest_decision(runtime.ledger, tail), waiting=waiting)
        return [name for sink in sinks for name in sink.sweep(cut, dry_run=dry_run)]


def newest_decision(ledger: Ledger, tail: Entry) -> Entry | None:
    """Return the entry of the newest decision, None if nothing was decided. Raises Failed if the entry is gone."""
    if tail.summary.decided_at is None:
        return None
    newest = ledger.read(tail.summary.decided_at)
    if newest is None or not isinstance(newest.body, Decided):
        raise Failed(
            f"The ledger lacks its newest decision, at position {tail.summary.decided_at}.",
            remedy="Restore the ledger from a backup.",
        )
    return newest
