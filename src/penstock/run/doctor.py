"""`penstock doctor`: what is staged and not published, which account lacks the newest decision, and what could hurt."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace

from tenacity import Retrying, retry_if_result, stop_after_attempt, wait_fixed

from penstock.blob import expiry_finding, open_store
from penstock.blob.url import is_blob
from penstock.commit.backfill import require_joinable
from penstock.commit.publication import batch_at, dead_staging, decision_in, require_sinks_of, waiting_entries
from penstock.core.high_water_mark import HighWaterMark
from penstock.core.model import (
    AccountName,
    Attempt,
    BatchId,
    Entry,
    Finding,
    Generation,
    Guarantee,
    Position,
    SinkName,
    SourceName,
    Staged,
    Summary,
    SweepCut,
    Waiting,
)
from penstock.core.topics import OpenTransaction
from penstock.errors import PenstockError, Refused, Usage
from penstock.observe.last_error import LastError, last_error
from penstock.observe.status import status
from penstock.protocols import HasMarker, HasStaging, Ledger, ListsOpenTransactions, Sink
from penstock.run.assembly import DeliveryPlan, checkpoint_of, ledger_of, sinks_of, spool_of
from penstock.run.continuation import require_continuation
from penstock.run.kafka_input import known_topics
from penstock.run.ledger_match import Place, ledger_mismatch, published_rows, require_own_staging
from penstock.run.lost_state import require_state
from penstock.run.operations import newest_decision
from penstock.run.preflight.compare import compare
from penstock.run.removed_directories import missing_directory, rows_gone
from penstock.run.status import topics_named
from penstock.source.kafka.options import client_options
from penstock.source.kafka.watch import kafka_sources
from penstock.spec.pipeline import PipelineSettings, without_ledger
from penstock.spec.source import Source
from penstock.support.secret import scrub

_LOOKS, _PAUSE_S = 6, 0.4
_FINE = frozenset({"published", "empty", "unknown"})
_sleep = time.sleep


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingPieces:
    """The number and size of staged pieces of one kind. `size_bytes` adds up the known sizes, None if none is known."""

    pieces: int = 0
    size_bytes: int | None = None
    oldest_generation: Generation | None = None
    oldest_batch: BatchId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountState:
    """One account of a sink. The account shows everything up to the position `mark`, where `batch_id` was decided.

    `state`: `published` (it shows everything that is decided), `empty` (nothing was published there), `outstanding` (not yet the
    newest decision), `lost` (it lacks the mark of what the ledger knows to be published there, or its directory), `foreign`
    (another ledger filled it), `ahead` (it shows more than the ledger holds, which is an older copy), `unknown` (the sink has no
    marker, and the ledger does not know the newest decision to be published), `unwritable` (nothing can be published there;
    `trouble` says why), `unreachable` (`trouble` says why). `decided` waits to be published, `running` may still be decided by
    the running generation, `dead` never.
    """

    sink: SinkName
    account: AccountName
    state: str
    mark: Position | None = None
    batch_id: BatchId | None = None
    decided: PendingPieces = field(default_factory=PendingPieces)
    running: PendingPieces = field(default_factory=PendingPieces)
    dead: PendingPieces = field(default_factory=PendingPieces)
    trouble: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """All accounts compared with the ledger, which got `entries` entries. `position` and `batch_id`: of the newest decision.

    `refused`: why a start would refuse Spark's checkpoint, or cannot look at it, and what to do; None if it would not.
    """

    pipeline: str
    ledger: str
    entries: int
    generation: Generation | None
    owner: str | None
    position: Position | None
    batch_id: BatchId | None
    accounts: tuple[AccountState, ...]
    findings: tuple[Finding, ...]
    transactions: tuple[OpenTransaction, ...] = ()
    refused: str | None = None
    failure: LastError | None = None
    """The error that ended the newest run, None if a driver runs or the ledger has got an entry since. It may be mended."""

    @property
    def ok(self) -> bool:
        """Whether nobody has to act. Warnings, what the next start collects, and what Kafka ends by itself need no action."""
        hangs = any(one.hangs for one in self.transactions)
        return not hangs and self.refused is None and all(account.state in _FINE for account in self.accounts)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """The ledger as read at one moment."""

    plan: DeliveryPlan
    ledger: Ledger
    tail: Entry | None
    newest: Entry | None
    rows: Mapping[Place, int]
    """How many rows each account holds for certain."""

    @property
    def cut(self) -> SweepCut | None:
        if self.tail is None:
            return None
        return dead_staging(self.tail, self.newest, waiting=waiting_entries(self.ledger, self.tail.summary))

    @property
    def is_settled(self) -> bool:
        return self.newest is None or (self.tail is not None and self.tail.summary.published_at == self.newest.position)

    def pieces(self, sink: SinkName, account: AccountName) -> Sequence[Staged]:
        """Return the newest decision's pieces for an account."""
        decided = () if self.newest is None else decision_in(self.newest).of_sink(sink)
        return [piece for piece in decided if piece.account == account]


def doctor_of(plan: DeliveryPlan) -> Diagnosis:
    """Compare all accounts with the ledger, for `Pipeline.doctor`. Lists every staging place. Raises what the ledger raises."""
    with closing(ledger_of(plan)) as ledger:
        tail = ledger.tail()
        newest = None if tail is None else newest_decision(ledger, tail)
        known = status(pipeline=plan.pipeline, ledger=ledger, checkpoint=None, error=last_error(plan.settings.home))
        sinks = sinks_of(plan)
        case = _Case(plan=plan, ledger=ledger, tail=tail, newest=newest, rows=published_rows(ledger, sinks))
        states = tuple(_with_writability(sinks, _look(sinks, case)))
        transactions, silent = _open_transactions(plan, sinks=sinks, ledger=ledger)
        return Diagnosis(
            pipeline=plan.pipeline,
            ledger=ledger.location,
            entries=0 if tail is None else tail.position,
            generation=known.generation,
            owner=known.owner,
            position=None if newest is None else newest.position,
            batch_id=None if newest is None else decision_in(newest).batch.batch_id,
            accounts=states,
            findings=(
                *(found for sink in sinks for found in _lifecycle(sink, states)),
                *ledger_lifecycle(plan),
                *spool_of(plan).lifecycle(),
                *silent,
            ),
            transactions=tuple(transactions),
            refused=_refusal(case, sinks, states),
            failure=known.failure,
        )


def _refusal(case: _Case, sinks: Sequence[Sink], states: Sequence[AccountState]) -> str | None:
    """Return why a start would be refused. None if a running driver moved ledger and checkpoint between the looks."""
    settings = case.plan.settings
    if settings.guarantee is not Guarantee.EXACTLY_ONCE or without_ledger(settings) is not None:
        return None
    summary = Summary() if case.tail is None else case.tail.summary
    try:
        require_continuation(summary, checkpoint_of(case.plan))
        require_state(case.plan, case.ledger, summary)
        require_joinable(summary, [sink.name for sink in sinks])
        if case.newest is not None:
            require_sinks_of(case.newest, sinks, summary)
        _require_unchanged(case, summary)
        if all(state.state in {*_FINE, "outstanding"} for state in states):  # else what is wrong there comes first
            require_own_staging(case.ledger, sinks, pipeline=case.plan.pipeline)
    except PenstockError as error:
        return scrub(f"{error.message} {error.remedy}") if case.ledger.tail() == case.tail else None
    return None


def _require_unchanged(case: _Case, summary: Summary) -> None:
    """Raise PipelineChanged for a change of the file that breaks the pipeline, as far as that is known without Spark."""
    settings = case.plan.settings
    if isinstance(settings, PipelineSettings) and settings.sources:
        compare(settings, case.plan, case.ledger, summary=summary).require_startable()


def _look(sinks: Sequence[Sink], case: _Case) -> tuple[AccountState, ...]:
    """Return all accounts. Looks again for a moment while one is outstanding: a running driver publishes what it decided."""
    waiting = Retrying(
        retry=retry_if_result(lambda states: any(state.state == "outstanding" for state in states)),
        stop=stop_after_attempt(_LOOKS),
        wait=wait_fixed(_PAUSE_S),
        sleep=_sleep,
        retry_error_callback=lambda last: last.outcome.result() if last.outcome else (),
    )
    found: tuple[AccountState, ...] = waiting(lambda: tuple(state for sink in sinks for state in _states(sink, case)))
    return found


def _with_writability(sinks: Sequence[Sink], states: Sequence[AccountState]) -> Iterator[AccountState]:
    """Yield the accounts, those with `trouble` that cannot be written. Asks no sink of which an account is unreachable."""
    for sink in sinks:
        own = [state for state in states if state.sink == sink.name]
        reached = not any(state.state == "unreachable" for state in own)
        failed = [finding for finding in _checked(sink) if not finding.ok] if reached else []
        for state in own:
            wrong = next((each for each in failed if each.account in {None, state.account}), None)
            if wrong is None:
                yield state
            else:
                yield replace(state, state="unwritable" if state.state in _FINE else state.state, trouble=wrong.message)


def _checked(sink: Sink) -> Sequence[Finding]:
    with closing(sink):
        return sink.check()


def _lifecycle(sink: Sink, states: Sequence[AccountState]) -> Iterator[Finding]:
    """Yield what a sink's stores delete by themselves; only warnings while an account is unreachable."""
    reached = not any(state.sink == sink.name and state.state == "unreachable" for state in states)
    if isinstance(sink, HasStaging):
        yield from (found for found in sink.lifecycle() if reached or found.warns)


def ledger_lifecycle(plan: DeliveryPlan) -> Sequence[Finding]:
    """Return whether the ledger's store deletes entries by itself; empty for a ledger that is not in a blob store."""
    place = plan.settings.ledger
    if not is_blob(place.url):
        return []
    return [expiry_finding(open_store(place.url, options=place.options), kept="", called="the ledger", uploads=False)]


def _states(sink: Sink, case: _Case) -> Iterator[AccountState]:
    try:
        for account in sink.accounts:
            try:
                yield _state(sink, account, case)
            except PenstockError as error:
                state = "lost" if isinstance(error, Refused) else "unreachable"
                yield AccountState(sink=sink.name, account=account, state=state, trouble=scrub(str(error)))
    finally:
        sink.close()


def _state(sink: Sink, account: AccountName, case: _Case) -> AccountState:
    high = sink.high_water_mark(account, pipeline=case.plan.pipeline) if isinstance(sink, HasMarker) else None
    mark = None if high is None else high.position
    mismatch = None if high is None else ledger_mismatch(high, case.ledger, sink=sink.name, account=account)
    state = _published(sink, account, mark, case) if mismatch is None else mismatch.state
    gone = None if high is None or mismatch is not None else _removed(sink, account, high, case)
    waits = case.pieces(sink.name, account) if state == "outstanding" else []
    running, dead = _sorted(_waiting(sink, account, case), case.cut, waits)
    return AccountState(
        sink=sink.name,
        account=account,
        state=state if gone is None else "lost",
        mark=mark,
        batch_id=None if mark is None else batch_at(case.ledger, mark),
        decided=_pending_pieces(
            [Waiting(name=piece.name, attempt=Attempt.find(piece.attempt), size_bytes=piece.totals.size_bytes) for piece in waits]
        ),
        running=_pending_pieces(running),
        dead=_pending_pieces(dead),
        trouble=None if gone is None else str(gone),
    )


def _removed(sink: Sink, account: AccountName, mark: HighWaterMark, case: _Case) -> Refused | None:
    """Return what to tell of an account whose directory was removed, None if it is there or nothing has to be in it."""
    directory = missing_directory(sink, account)
    if directory is None:
        return None
    place = (sink.name, account)
    return rows_gone(case.ledger, place, directory=directory, mark=mark, certain=case.rows.get(place, 0))


def _published(sink: Sink, account: AccountName, mark: Position | None, case: _Case) -> str:
    rows, pieces = case.rows.get((sink.name, account), 0), case.pieces(sink.name, account)
    if isinstance(sink, HasMarker) and mark is None and rows:
        return "lost"
    if case.newest is None or not pieces:
        return "empty" if not mark and not rows else "published"
    if not isinstance(sink, HasMarker):
        return "published" if case.is_settled else "unknown"
    if mark is not None and mark >= case.newest.position:
        return "published"
    return "lost" if case.is_settled else "outstanding"


def _waiting(sink: Sink, account: AccountName, case: _Case) -> Iterator[Waiting]:
    """Yield what is staged for an account; if the sink cannot tell, what a sweep would take, for the first account only."""
    if isinstance(sink, HasStaging):
        yield from sink.waiting(account, pipeline=case.plan.pipeline)
    elif case.cut is not None and account == sink.accounts[0]:
        yield from (Waiting(name=name, attempt=None, size_bytes=None) for name in sink.sweep(case.cut, dry_run=True))


def _sorted(
    found: Iterator[Waiting], cut: SweepCut | None, decided: Sequence[Staged]
) -> tuple[Sequence[Waiting], Sequence[Waiting]]:
    """Return pieces that the running generation may still decide or leave to a later sweep, and dead ones, without `decided`."""
    running, dead, of_decision = list[Waiting](), list[Waiting](), {piece.attempt for piece in decided}
    for one in found:
        if one.attempt is None or (cut is not None and cut.is_dead(one.attempt)):
            dead.append(one)
        elif one.attempt.token not in of_decision:
            running.append(one)
    return running, dead


def _pending_pieces(found: Sequence[Waiting]) -> PendingPieces:
    sizes = [one.size_bytes for one in found if one.size_bytes is not None]
    oldest = min(
        ((one.attempt.generation, one.attempt.batch_id) for one in found if one.attempt is not None), default=(None, None)
    )
    return PendingPieces(
        pieces=len(found), size_bytes=sum(sizes) if sizes else None, oldest_generation=oldest[0], oldest_batch=oldest[1]
    )


def _open_transactions(
    plan: DeliveryPlan, *, sinks: Sequence[Sink], ledger: Ledger
) -> tuple[Sequence[OpenTransaction], Sequence[Finding]]:
    """Return all open transactions on topics of sources and `sinks`, the oldest first, and places that could not be asked."""
    found, silent = list[OpenTransaction](), list[Finding]()
    for subject, place in _places(plan, sinks, ledger).items():
        try:
            found += place.open_transactions()
        except PenstockError as error:
            silent.append(Finding(subject=subject, ok=True, warns=True, message=str(error)))
    unique = {(one.topic, one.partition, one.producer_id): one for one in found}.values()
    return sorted(unique, key=lambda one: -one.open_ms), silent


def end_transaction(plan: DeliveryPlan, name: str) -> Sequence[OpenTransaction]:
    """End the transaction that `doctor` calls `name`, and return where it was open. Raises Usage without one, Failed."""
    with closing(ledger_of(plan)) as ledger:
        sinks = sinks_of(plan)
        for sink in sinks:
            sink.close()
        places = _places(plan, sinks, ledger)
    for place in places.values():
        found = [one for one in place.open_transactions() if one.name == name]
        if found:
            place.end_transaction(found[0])
            return found
    raise Usage(f"No transaction {name!r} is open on the topics of {plan.pipeline!r}.", remedy="`penstock doctor` lists them.")


def _places(plan: DeliveryPlan, sinks: Sequence[Sink], ledger: Ledger) -> Mapping[str, ListsOpenTransactions]:
    places: dict[str, ListsOpenTransactions] = {
        f"sink {sink.name}": sink for sink in sinks if isinstance(sink, ListsOpenTransactions)
    }
    sources = dict(kafka_sources(plan.settings))
    tail = ledger.tail() if sources else None
    read = () if tail is None else known_topics(ledger, tail.summary)
    for name, source in sources.items():
        topics = [topic.topic for topic in read if topic.source == name]
        places[f"source {name}"] = _Source(name, source, [*topics, *topics_named(source)])
    return places


class _Source:
    """The topics that a source reads: an open transaction there holds up the pipeline itself."""

    def __init__(self, name: SourceName, source: Source, topics: Sequence[str]) -> None:
        self._name = name
        self._source = source
        self._topics = topics

    def open_transactions(self) -> Sequence[OpenTransaction]:
        from penstock.kafka.transactions import open_transactions

        return open_transactions(client_options(self._name, self._source), self._topics)

    def end_transaction(self, one: OpenTransaction) -> None:
        from penstock.kafka.transactions import end_transaction

        end_transaction(client_options(self._name, self._source), one)
