"""The coordinator: open a generation, decide each batch once, publish it everywhere by rolling forward.

It does no I/O of its own: ledger and sinks do. The simulator (`penstock.testing.simulator`) drives this very class.

Where to look:

- **Exactly once** is the append in `_decide`: put-if-absent at the position behind the tail. Staged rows are invisible before it,
  and after it every driver publishes the same content.
- **A lost answer** is resolved in `append.py`: the entry at that position is read, and its nonce says whose it is.
- **A crash** after the decision is repaired in `open`: the newest decision is published again, before Spark runs anything.
- **An act that fences nobody**, or a backfill, takes a position as any entry does. This run appends behind it: `_go_behind`.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial

from tenacity import Retrying

from penstock.commit.append import Occupied, append_once, fenced_by
from penstock.commit.executor import (
    DeferredPublish,
    Executor,
    LedgerTransaction,
    Outstanding,
    Timed,
    all_published,
    publish_entry,
    publish_in,
)
from penstock.commit.identity import recognise
from penstock.commit.outcome import Delivered, Recovered, StagedBatch
from penstock.commit.publication import (
    decision_in,
    decision_of,
    filled_since,
    joined_since,
    replay_takers,
    replaying_entry,
    require_sinks_of,
    share_of,
    sinks_apart,
    waiting_entries,
)
from penstock.commit.rewind import require_repeated, require_rewound, sinks_ahead, sinks_astray, takers_of
from penstock.commit.summary import after_decision, after_opening, after_published, awaiting
from penstock.commit.upkeep import PRUNE_EVERY, RETAINED_ENTRIES, Pruning, PublicationMeter, maintain_targets, sweep_sinks
from penstock.core.backfill import Backfilled, BackfillEnded, BackfillOpened
from penstock.core.model import (
    Batch,
    BatchId,
    Body,
    Decided,
    Decision,
    Entry,
    Generation,
    Opened,
    PipelineName,
    Position,
    Published,
    RemovalAccepted,
    SinkName,
    Summary,
    Totals,
    new_nonce,
)
from penstock.errors import Failed, Fenced, LedgerMismatch, PenstockError, Refused, Retryable
from penstock.protocols import HasStaging, InTransaction, Ledger, Sink

OnDelivered = Callable[[Delivered], None]
FENCES_NOBODY = RemovalAccepted | BackfillOpened | Backfilled | BackfillEnded
_OPENINGS = 5
"""How often a start tries to append its fence while other drivers start, too."""


class ActAheadError(Exception):
    """The position holds an operator's act of this run's generation. The tail is known now: append behind it."""


class _JoinedError(Exception):
    """A backfill beside this run has ended, or begun, since the batch was staged: other sinks take part in it now."""


class Coordinator:
    """The one writer of a pipeline's ledger in this process. Not thread-safe. One that raised is spent: open a new one.

    `executor` runs publications side by side; `deferred` runs them beside the next batch, without it they run at once.
    `retrying` repeats an append or a publication that raised Retryable. `prepare_joined` is called for each sink before it takes
    part in its first batch: one that was apart at the start is prepared there. `now_ms` is a clock for people and durations,
    never for decisions.
    """

    def __init__(
        self,
        *,
        pipeline: PipelineName,
        ledger: Ledger,
        sinks: Sequence[Sink],
        now_ms: Callable[[], int],
        retrying: Retrying,
        executor: Executor = map,
        timed: Timed = nullcontext,
        deferred: DeferredPublish | None = None,
        prepare_joined: Callable[[Sink], None] = lambda _: None,
        retained: int = RETAINED_ENTRIES,
        prune_every: int = PRUNE_EVERY,
    ) -> None:
        self._pipeline = pipeline
        self._ledger = ledger
        self._sinks = tuple(sinks)
        self._meter = PublicationMeter((ledger, *sinks), now_ms, counts_requests=deferred is None)
        self._pruning = Pruning(ledger, retained=retained, every=prune_every)
        self._now_ms = now_ms
        self._executor, self._timed = executor, timed
        self._deferred = deferred
        self._retrying = retrying
        self._tail: Entry | None = None
        self._newest: Entry | None = None
        self._outstanding = Outstanding()
        self._claimed = set[SinkName]()
        self._prepare_joined = prepare_joined
        self._staged_without = frozenset[SinkName]()
        self._spent = True

    @property
    def generation(self) -> Generation:
        return self._open_tail().generation

    @property
    def summary(self) -> Summary:
        """The ledger's state as of this coordinator's newest entry."""
        return self._open_tail().summary

    @property
    def decided_generation(self) -> Generation | None:
        """The generation of the run that decided the newest batch, None before there is one."""
        return None if self._newest is None else self._newest.generation

    def open(self, opened: Opened, *, finishing: Position | None = None) -> Recovered:
        """Fence every older generation, publish the newest decision everywhere, collect dead staging. The only way to start.

        Raises Refused while a rewind is not carried out, except the one at position `finishing`.
        """
        self._tail = self._append_fence(opened)  # I9
        require_rewound(self._tail.summary, self._ledger, except_at=finishing)
        with self._prefer_fenced():
            self._newest = self._read_newest(self._tail.summary)
            published = self._publish_newest()  # I1
            replay = self._publish_replay()  # I1
        self._note_published()
        self._spent = False
        swept, warnings = self.sweep()  # I10
        return Recovered(
            generation=self._tail.generation,
            summary=self._tail.summary,
            decision=None if self._newest is None else decision_in(self._newest),
            sinks=published,
            swept=swept,
            warnings=warnings,
            replay=replay,
        )

    def deliver(self, batch: Batch, stage: Callable[[Generation], StagedBatch]) -> Delivered:
        """Call `begin`, then `wait`, and raise what they raise. The batch is published everywhere when this returns."""
        delivered: list[Delivered] = []
        self.begin(batch, stage, on_delivered=delivered.append)
        self.wait()
        return delivered[0]

    def begin(self, batch: Batch, stage: Callable[[Generation], StagedBatch], *, on_delivered: OnDelivered) -> None:
        """Have `batch` delivered exactly once; `stage` is called only if it was not decided before.

        When this returns the batch is decided: only a lost ledger or sink can undo that. `on_delivered` is called once it is
        published everywhere. With `deferred` that is in another thread, and the next batch may be staged by then, not decided.
        Raises Refused (the ledger does not expect this batch), Fenced (a newer generation is open), what staging this batch
        raises, and what publishing it or the batch before raises. After any exception this coordinator is spent.
        """
        if self._spent:
            raise Failed("This delivery failed earlier, or was never opened.", remedy="Start the pipeline again: it recovers.")
        with self._spent_if_it_fails():
            decision = recognise(batch, summary=self.summary, decision_of=self._decision_of)  # I2
            if decision is None:
                require_repeated(batch, summary=self.summary, sinks=self._sinks, ledger=self._ledger)
                publish = partial(self._publish_everywhere, self._stage_and_decide(batch, stage), on_delivered)
                if self._deferred is None:
                    publish()
                else:
                    self._outstanding.wait_for(self._deferred(publish))
            else:
                self._join()
                on_delivered(self._already(decision))

    def wait(self) -> None:
        """Wait until every decided batch is published everywhere. Any thread may call it.

        Raises what publishing raised; then this coordinator is spent.
        """
        with self._spent_if_it_fails():
            self._join()

    def require_newest(self) -> None:
        """Raise Fenced if a newer run has opened the ledger. An entry of this run whose answer was lost does not count.

        May be called by another thread while a batch runs.
        """
        tail = self._open_tail()
        newest = self._ledger.tail()
        if newest is not None and newest.generation > tail.generation:
            raise fenced_by(Occupied(newest), generation=tail.generation, position=newest.position)

    def sweep(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Collect staging that can never be decided any more. Returns its names, and warnings."""
        waiting, apart = waiting_entries(self._ledger, self.summary), sinks_apart(self.summary)
        sinks = [sink for sink in self._sinks if sink.name not in apart]  # I10: a backfill stages there
        return sweep_sinks(sinks, self._open_tail(), self._newest, waiting=waiting)

    # --- opening

    def _append_fence(self, opened: Opened) -> Entry:
        for _ in range(_OPENINGS):
            tail = self._ledger.tail()
            if tail is not None and tail.pipeline != self._pipeline:
                raise LedgerMismatch.of_another(tail.pipeline, own=self._pipeline, location=self._ledger.location)
            summary = awaiting(after_opening(tail.summary if tail else None), opened.sinks)
            entry = self._entry(opened, summary=summary, after=tail, new_generation=True)
            if append_once(self._ledger, entry, retrying=self._retrying) is None:
                return entry
        raise Retryable("Several drivers are opening this pipeline at the same time.", remedy="Start just one of them.")

    def _read_newest(self, summary: Summary) -> Entry | None:
        if summary.decided_at is None:
            return None
        newest = self._ledger.read(summary.decided_at)
        if newest is None or not isinstance(newest.body, Decided):
            raise LedgerMismatch(
                f"The ledger at {self._ledger.location} lacks its newest decision at position {summary.decided_at}.",
                remedy="Entries were removed or changed by hand: restore the ledger from a backup.",
            )
        return newest

    def _publish_newest(self) -> dict[SinkName, Published]:
        if self._newest is None:
            return {}
        require_sinks_of(self._newest, self._sinks, self.summary)
        since = max(self.summary.rewound_at or 0, self.summary.replayed_at or 0)
        if since > self._newest.position:  # it was published long ago: sinks may remember it no more
            return {sink.name: Published(totals=Totals(), already=True) for sink in self._sinks}
        takers = takers_of(self._newest, self._sinks)
        others = (*joined_since(self._newest, takers), *filled_since(self._newest, takers, self.summary))
        sinks = [sink for sink in takers if sink not in others]
        nothing = {sink.name: Published(totals=Totals(), already=True) for sink in self._sinks if sink not in sinks}
        outcomes = list(self._executor(self._publishing(), sinks))
        return nothing | all_published(decision_in(self._newest).batch.batch_id, sinks, outcomes)

    def _publish_replay(self) -> dict[SinkName, Published]:
        """Publish the newest replay if that is not done. Every later decision, and its publication, comes behind it."""
        replay = replaying_entry(self._ledger, self.summary)
        if replay is None:
            return {}
        sinks = replay_takers(replay, self._sinks)
        publish = partial(publish_entry, replay, ledger_id=self.summary.ledger_id, retrying=self._retrying, timed=self._timed)
        published = all_published(decision_in(replay).batch.batch_id, sinks, list(self._executor(publish, sinks)))
        tail = self._open_tail()
        self._tail = replace(tail, summary=replace(tail.summary, replaying_at=None))
        return published

    # --- a batch

    def _already(self, decision: Decision) -> Delivered:
        sinks = {sink.name: Published(totals=decision.totals_of(sink.name), already=True) for sink in self._sinks}
        return Delivered(batch=decision.batch, rows_in=decision.rows_in, already=True, sinks=sinks, dropped=decision.dropped)

    def _stage_and_decide(self, batch: Batch, stage: Callable[[Generation], StagedBatch]) -> Delivered:
        """Stage and decide `batch`, again if a sink joins meanwhile. Return its delivery, as far as it is known by then."""
        while True:
            self._staged_without = sinks_apart(self.summary)
            self._claim_places([sink for sink in self._sinks if sink.name not in self._staged_without])
            with suppress(_JoinedError):
                return self._decide_staged(batch, stage(self._open_tail().generation))

    def _decide_staged(self, batch: Batch, staged: StagedBatch) -> Delivered:
        ahead = sinks_ahead(self.summary, batch.batch_id)
        self._join()
        decision = Decision(
            batch=batch,
            staged=tuple(piece for piece in staged.pieces if piece.sink not in ahead),
            rows_in=staged.rows_in,
            schema=staged.schema,
            stage_ms=staged.stage_ms,
            previous_publish_ms=self._meter.publish_ms,
            stage_requests=staged.requests if self._meter.counts_requests else None,
            previous_publish_requests=self._meter.requests,
            evidence=staged.evidence,
            schemas={sink: schema for sink, schema in staged.schemas.items() if sink not in ahead},
            dropped=staged.dropped,
            rows_read=staged.rows_read,
        )
        self._meter.start()
        published = self._decide(decision)
        return Delivered(
            batch=batch,
            rows_in=staged.rows_in,
            already=False,
            sinks=published,
            stage_ms=staged.stage_ms,
            decide_ms=self._meter.decided(),
            dropped=staged.dropped,
        )

    def _claim_places(self, sinks: Sequence[Sink]) -> None:
        """Claim the sinks' places before the first batch is staged: no other ledger publishes or sweeps there then (I2, I10)."""
        ledger_id = self.summary.ledger_id
        for sink in (sink for sink in sinks if sink.name not in self._claimed):
            self._prepare_joined(sink)
            if ledger_id is not None and isinstance(sink, HasStaging):
                self._retrying(sink.claim, ledger_id)
            self._claimed.add(sink.name)

    def _publish_everywhere(self, delivered: Delivered, on_delivered: OnDelivered) -> None:
        """Publish the newest decision in every sink. Only the next decision has to wait for it."""
        sinks = [sink for sink in self._sinks if sink.name not in delivered.sinks]
        outcomes = list(self._executor(self._publishing(), sinks))
        published = all_published(delivered.batch.batch_id, sinks, outcomes)
        self._note_published()
        publish_ms = self._meter.published()
        newest = self._newest
        assert newest is not None
        previous = newest.summary.published_at or Position(0)
        warnings = self._pruning.after(newest.position, previous=previous)
        self._meter.ended()
        warnings += maintain_targets(takers_of(newest, self._sinks), partial(share_of, decided=newest, summary=self.summary))
        on_delivered(replace(delivered, sinks={**delivered.sinks, **published}, publish_ms=publish_ms, warnings=warnings))

    def _join(self) -> None:
        """Wait for the outstanding publication: a batch is decided only when the one before is published everywhere."""
        self._outstanding.wait()

    def _decide(self, decision: Decision) -> dict[SinkName, Published]:
        """Append the decision; sinks in the ledger's own database are published by the same transaction."""
        while True:
            with suppress(ActAheadError):
                return self._try_decide(decision)

    def _try_decide(self, decision: Decision) -> dict[SinkName, Published]:
        tail = self._open_tail()
        if sinks_apart(tail.summary) != self._staged_without:
            raise _JoinedError  # I1: what joined now would lack the batch
        astray = sinks_astray(decision.batch, summary=tail.summary, sinks=self._sinks, ledger=self._ledger)
        summary = after_decision(tail.summary, decision, position=Position(tail.position + 1), astray=astray)
        entry = self._entry(Decided(decision=decision), summary=summary, after=tail)
        takers = takers_of(entry, self._sinks)
        ledger_transaction = LedgerTransaction(takers, entry, home=self._ledger.home)
        with ledger_transaction.entered(self._retrying):
            self._append(entry, within=ledger_transaction.within)  # I2, I8: here the batch is decided, exactly once
            self._newest = entry
        kept = {sink.name: Published(totals=Totals(), already=True) for sink in self._sinks if sink not in takers}
        return {**ledger_transaction.published, **kept}

    def _publishing(self) -> Callable[[Sink], Published | PenstockError]:
        """Return what publishes the newest decision in a sink."""
        assert self._newest is not None
        share = partial(share_of, decided=self._newest, summary=self.summary)
        return partial(publish_in, share=share, retrying=self._retrying, timed=self._timed)

    # --- the ledger

    def _decision_of(self, batch_id: BatchId) -> Decision | None:
        """Return the newest retained decision of that batch number since the last adoption, None if there is none."""
        newest = None if self._newest is None or self.summary.continued_from is None else decision_in(self._newest)
        return newest if newest is not None and newest.batch.batch_id == batch_id else decision_of(self._ledger, batch_id)

    def _append_behind(self, entry_after: Callable[[Entry], Entry]) -> Entry:
        """Append what `entry_after` returns for the tail."""
        while True:
            with suppress(ActAheadError):
                return self._append(entry_after(self._open_tail()))

    def _append(self, entry: Entry, *, within: InTransaction | None = None) -> Entry:
        taken = append_once(self._ledger, entry, within=within, retrying=self._retrying)
        if taken is not None:
            self._go_behind(taken.by, entry)
            raise fenced_by(taken, generation=entry.generation, position=entry.position)  # I9
        self._tail = entry
        return entry

    def _go_behind(self, found: Entry | None, entry: Entry) -> None:
        """Take the ledger's tail, which follows `found`, for this run's, and raise ActAheadError if it fences nobody (I9).

        `found` has the position of `entry`. Only this run decides in its generation: so nothing but acts, and what backfills
        gave, happened since, and `entry` was not written.
        """
        if found is None or not isinstance(found.body, FENCES_NOBODY):
            return
        tail = self._ledger.tail() or found
        if tail.generation > entry.generation:
            raise fenced_by(Occupied(tail), generation=entry.generation, position=tail.position)
        known = self.summary  # the act knows only what the ledger says
        summary = replace(tail.summary, published_at=known.published_at, replaying_at=known.replaying_at)
        self._tail = replace(tail, summary=summary)
        raise ActAheadError

    @contextmanager
    def _spent_if_it_fails(self) -> Iterator[None]:
        try:
            with self._prefer_fenced():
                yield
        except BaseException:
            self._spent = True
            raise

    @contextmanager
    def _prefer_fenced(self) -> Iterator[None]:
        """Raise Fenced instead of any failure if a newer run exists: its sweep or its markers may be the cause."""
        try:
            yield
        except Fenced:
            raise
        except Exception as failure:
            try:
                self.require_newest()
            except PenstockError as found:
                if isinstance(found, Fenced) or isinstance(failure, Refused):  # a refusal of an older run may be wrong
                    raise
            raise

    def _entry(self, body: Body, *, summary: Summary, after: Entry | None, new_generation: bool = False) -> Entry:
        before = 0 if after is None else after.generation
        return Entry(
            pipeline=self._pipeline,
            position=Position(1 if after is None else after.position + 1),
            generation=Generation(before + 1 if new_generation else before),
            nonce=new_nonce(),
            written_at_ms=self._now_ms(),
            body=body,
            summary=summary,
        )

    def _open_tail(self) -> Entry:
        if self._tail is None:
            raise Failed("This coordinator was never opened.", remedy="Call open() first.")
        return self._tail

    def _note_published(self) -> None:
        tail = self._open_tail()
        self._tail = replace(tail, summary=after_published(tail.summary))
