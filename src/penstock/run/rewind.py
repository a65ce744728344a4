"""`penstock rewind`: takes back every batch after one, from sinks, ledger and checkpoint together, so that Spark does them again.

Order of durable steps (docs/PROTOCOL.md, Rewinding): the fence, the publication of what is decided, the entry `Rewound`, the
sinks, the checkpoint, and the entry that records that all of it is done. The same command finishes what was interrupted.
"""

import getpass
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from penstock.checkpoint.act import Act
from penstock.checkpoint.acting import Performed, perform
from penstock.checkpoint.entries import REWOUND
from penstock.checkpoint.files import Files
from penstock.checkpoint.rewind_plan import plan_rewind as plan_checkpoint
from penstock.checkpoint.source_log import is_fingerprint
from penstock.commit.acts import ActingCoordinator
from penstock.commit.publication import decision_in, decision_of
from penstock.commit.rewind import TakesBack, ahead_after, decided_to, require_level, taken_back
from penstock.core.faults import FaultPoint
from penstock.core.model import BatchId, Entry, Json, Opened, Position, Rewound, SinkName, SourceName, Totals
from penstock.core.taken_back import TakenBack
from penstock.core.topics import InputFile
from penstock.errors import CheckpointDamaged, LedgerMismatch, PenstockError, Refused, Retryable, SourcesChanged, Usage
from penstock.protocols import HasMarker, Ledger, Sink
from penstock.run.assembly import DeliveryPlan
from penstock.run.checkpoint_acts import require_query, require_same_ends, stopped
from penstock.run.operations import coordinating
from penstock.run.runtime import Runtime, now_ms, opened_by_this_process, prepare
from penstock.run.status import input_lag
from penstock.sink.concurrent import map_concurrently
from penstock.source.journal.journals import Journals, Needed
from penstock.support.secret import scrub

SINK = FaultPoint("rewind.sink", "A sink loses the batches that were taken back.")
CHECKPOINT = FaultPoint("rewind.checkpoint", "Spark's checkpoint is set back.")
KEEP = FaultPoint("rewind.keep", "The ledger records that a sink that is gone keeps what a rewind takes back.")
FINISH = FaultPoint("rewind.finish", "The ledger records that a rewind is carried out.")

_TAKE_OUT = "Run `penstock recover`, then take such a sink out of the pipeline file, and do this again: it keeps what it has."


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointWay:
    """How the checkpoint gets to the end of a batch: the act `verb`, asked for by `request`; `plan` gets the files to change.

    `plan` is also told whether the plan of the batch after that has to stay. `replaces`: the checkpoint gets another content,
    whatever it holds. Then no sink can be kept ahead: the plan of the next batch is not in there.
    """

    verb: str
    request: Mapping[str, Json]
    plan: Callable[[Files, bool], Act]
    replaces: bool = False

    @staticmethod
    def back_to(batch_id: BatchId) -> "CheckpointWay":
        """Return the way that begins with what the checkpoint itself holds."""
        return CheckpointWay(
            verb=REWOUND,
            request={"to_batch": batch_id},
            plan=lambda files, keeps_plan: replace(
                plan_checkpoint(files, to_batch=batch_id, keeps_plan=keeps_plan), verb=REWOUND
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkRewind:
    """What a rewind does in one sink: it loses `totals`, or keeps them. `refused` says why it cannot lose them exactly."""

    sink: SinkName
    totals: Totals
    kept: bool = False
    refused: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewind:
    """What a rewind means, or did. `newest` was the last batch before it; `position` is that of the act in the ledger.

    `checkpoint` says what happens to Spark's checkpoint. `lost` names input that is gone, so that batches that are taken back
    could not be done again; `unknown` is what could not be looked at. `resumed`: the act was recorded earlier.
    """

    to_batch: BatchId
    newest: BatchId
    sinks: tuple[SinkRewind, ...]
    checkpoint: str
    lost: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    needed: bool = True
    resumed: bool = False
    done: bool = False
    position: Position | None = None

    @property
    def refused(self) -> bool:
        """Whether it cannot be done as it is asked for."""
        return bool(self.lost) or any(each.refused for each in self.sinks)


def rewind(
    plan: DeliveryPlan,
    *,
    to_batch: BatchId,
    keep: Sequence[SinkName],
    reason: str,
    yes: bool,
    way: CheckpointWay | None = None,
) -> Rewind:
    """State what taking back every batch after `to_batch` means; with `yes` do it, or finish what an earlier call began.

    `keep`: sinks that stay ahead. `way`: how the checkpoint gets there, by default from what it holds. Raises Refused while a
    driver runs on this machine, where a sink can neither lose these batches exactly nor is kept, and where the input is gone;
    BatchGap, BatchForgotten.
    """
    with stopped(plan) as (runtime, notes):
        asked = _Asked(
            plan=plan,
            runtime=runtime,
            to_batch=to_batch,
            keep=tuple(dict.fromkeys(keep)),
            notes=notes,
            way=way or CheckpointWay.back_to(to_batch),
        )
        unfinished = _unfinished(runtime.ledger)
        if unfinished is not None:
            return asked.finish(unfinished, reason=reason, yes=yes)
        asked.require_sensible()
        planned = asked.plan_act()
        if not yes or not planned.needed:
            return planned
        _require_possible(planned, asked.way)
        return asked.act(reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """One request to rewind, and what it works on."""

    plan: DeliveryPlan
    runtime: Runtime
    to_batch: BatchId
    keep: tuple[SinkName, ...]
    notes: tuple[str, ...]
    way: CheckpointWay

    def require_sensible(self) -> None:
        names = [sink.name for sink in self.runtime.sinks]
        unknown = next((name for name in self.keep if name not in names), None)
        if unknown is not None:
            raise Usage(f"The pipeline has no sink {unknown!r} to keep.", remedy=f"It has {', '.join(names)}.")
        if self.keep and self.way.replaces:
            raise Refused(
                f"Sink {self.keep[0]!r} cannot stay ahead: the plan of the next batch is not in a savepoint.", remedy=_TAKE_OUT
            )

    def plan_act(self) -> Rewind:
        """Return what the act means, judged by ledger, sinks and checkpoint. Changes nothing."""
        ledger = self.runtime.ledger
        target = decided_to(ledger, self.to_batch)
        tail = ledger.tail()
        assert tail is not None
        kept = self._kept(tail, target)
        self._require_level(tail, target, kept)
        newest = BatchId((tail.summary.next_batch_id or 0) - 1)
        if not self.way.replaces:
            require_query(self.runtime.checkpoint.query_id(), tail.summary)
            require_same_ends(self.runtime, self.to_batch)
        checkpoint = self._checkpoint(kept, yes=False, keeps_plan=bool(self.keep) and newest > self.to_batch)
        sinks = tuple(self._of_sink(sink, target, tail) for sink in self.runtime.sinks)
        lag = input_lag(self.plan.settings, ledger, now_ms=now_ms, summary=replace(tail.summary, decided_at=target.position))
        gone = [f"{each.gaps:,} records of topic {each.topic}" for each in lag.topics if each.gaps]
        gone += [f"records of stream {each.stream} ({each.gap})" for each in lag.streams if each.gap is not None]
        gone += [
            f"{each.lost:,} rows of table {each.table}, which its ledger has forgotten" for each in lag.tables if each.forgotten
        ]
        gone += self._events_gone(target)
        files_gone, unseen = self._files_gone(target, newest)
        return Rewind(
            to_batch=self.to_batch,
            newest=newest,
            sinks=sinks,
            checkpoint=checkpoint.act.sentence,
            lost=(*gone, *files_gone),
            unknown=(*self.notes, *lag.unknown, *unseen),
            needed=newest > self.to_batch or bool(checkpoint.act.steps),
        )

    def act(self, reason: str) -> Rewind:
        """Fence, publish what is decided, record the act, and carry it out."""
        with coordinating(self.runtime) as coordinator:
            prepare(self.runtime, schema=None)
            opened = opened_by_this_process(self.runtime)
            coordinator.open(opened)
            self._hold_events()  # before the last look: what is there then stays until it is done again
            planned = self.plan_act()  # I2: a run that was alive may have decided batches meanwhile
            _require_possible(planned, self.way)
            position = None
            if planned.newest > self.to_batch:
                position = coordinator.rewind(self._rewound(reason)).position
            self._carry_out(coordinator, opened, position)
            return replace(planned, done=True, position=position)

    def _rewound(self, reason: str) -> Rewound:
        target, tail = decided_to(self.runtime.ledger, self.to_batch), self.runtime.ledger.tail()
        assert tail is not None
        kept = self._kept(tail, target)
        return Rewound(batch_id=self.to_batch, to=target.position, kept=kept, reason=reason, operator=getpass.getuser())

    def _require_level(self, tail: Entry, target: Entry, kept: Sequence[SinkName]) -> None:
        try:
            require_level(tail, target, kept)
        except Refused as refusal:
            if self.way.replaces:
                refusal.remedy = _TAKE_OUT
            raise

    def _kept(self, tail: Entry, target: Entry) -> tuple[SinkName, ...]:
        """Return the sinks that keep the batches: those that are named, and those that left the pipeline file since."""
        there, then = {sink.name for sink in self.runtime.sinks}, target.summary.totals
        left = {name for name, totals in tail.summary.totals.items() if totals != then.get(name)}
        return (*self.keep, *sorted((left | ahead_after(target).keys() | ahead_after(tail).keys()) - there))

    def finish(self, unfinished: Entry, *, reason: str, yes: bool) -> Rewind:
        """Carry out an act that was recorded earlier and interrupted. Raises Refused if another one is asked for.

        A sink that is gone, and that `keep` names, is left with what it has.
        """
        act, tail = unfinished.body, self.runtime.ledger.tail()
        assert isinstance(act, Rewound)
        assert tail is not None
        gone = tuple(name for name in self.keep if name not in act.kept and name not in tail.summary.ahead)
        unable = self._losers(unfinished, tail).keys()
        if act.batch_id != self.to_batch or not set(gone) <= unable:
            kept = "".join(f" --keep {name}" for name in act.kept)
            raise Refused(
                f"A rewind to batch {act.batch_id} was begun at position {unfinished.position} of the ledger, and is "
                "not finished.",
                remedy=f"Finish it: `penstock rewind FILE --to-batch {act.batch_id}{kept} --yes`",
            )
        self._require_losers(unfinished, tail, gone)
        before = self.runtime.ledger.read(Position(unfinished.position - 1))
        newest = self.to_batch if before is None else BatchId((before.summary.next_batch_id or 0) - 1)
        planned = Rewind(
            to_batch=self.to_batch,
            newest=newest,
            sinks=tuple(self._share(sink, unfinished) for sink in self.runtime.sinks),
            checkpoint=self._checkpoint(act.kept, yes=False).act.sentence,
            unknown=self.notes,
            resumed=True,
            position=unfinished.position,
        )
        if not yes:
            return planned
        with coordinating(self.runtime) as coordinator:
            prepare(self.runtime, schema=None, finishing=unfinished.position)
            opened = opened_by_this_process(self.runtime)
            coordinator.open(opened, finishing=unfinished.position)
            if gone:
                with KEEP.around():
                    coordinator.keep_in_rewind(unfinished, gone, reason=reason, operator=getpass.getuser())
            self._carry_out(coordinator, opened, unfinished.position)
        return replace(planned, done=True)

    def _require_losers(self, act: Entry, tail: Entry, gone: Collection[SinkName]) -> None:
        """Raise Refused if a sink that the act takes batches from cannot lose them: else they would stay, and come again (I2)."""
        for name, unable in self._losers(act, tail).items():
            if name not in gone:
                unable.remedy += f" If it is gone for good, `--keep {name}` leaves it with what it has, and the ledger says so."
                raise unable

    def _losers(self, act: Entry, tail: Entry) -> Mapping[SinkName, Refused]:
        """Return the sinks that the act takes batches from and that cannot lose them, each with the refusal for it."""
        assert isinstance(act.body, Rewound)
        before = self.runtime.ledger.read(Position(act.position - 1))
        totals = {} if before is None else before.summary.totals
        kept = {*act.body.kept, *tail.summary.ahead}
        losing = {name for name, of in totals.items() if name not in kept and of != act.summary.totals.get(name)}
        sinks = {sink.name: sink for sink in self.runtime.sinks}
        found = dict[SinkName, Refused]()
        for name in sorted(losing):
            if name not in sinks:
                found[name] = Refused(
                    f"Sink {name!r} has batches to lose, and the pipeline does not have it any more.",
                    remedy="Put it back into the pipeline file as it was, and run the command again; then take it out.",
                )
            elif sinks[name].exactly_once and not isinstance(sinks[name], TakesBack):
                found[name] = Refused(
                    f"Sink {name!r} has batches to lose, and what it is now cannot lose any.",
                    remedy="Make it again in the pipeline file what it was, and run the command again.",
                )
        return found

    # --- carrying out

    def _carry_out(self, coordinator: ActingCoordinator, opened: Opened, position: Position | None) -> None:
        """Do in sinks and checkpoint what the act at `position` says (None: only the checkpoint lags), and record that."""
        kept: Sequence[SinkName] = self.keep
        if position is not None:
            act = self.runtime.ledger.read(position)
            assert act is not None
            assert isinstance(act.body, Rewound)
            kept = act.body.kept
            map_concurrently(lambda sink: self._take_back(sink, act), self.runtime.sinks, parallel=len(self.runtime.sinks))
        with CHECKPOINT.around():
            self._checkpoint(kept, yes=True, require_newest=coordinator.require_newest)
        with FINISH.around():
            coordinator.settle(opened)

    def _take_back(self, sink: Sink, act: Entry) -> None:
        assert isinstance(act.body, Rewound)
        if sink.name in act.body.kept or not isinstance(sink, TakesBack):
            return
        taken = taken_back(self.runtime.ledger, sink.name, after=act.body.to, before=act.position, generation=act.generation)
        with SINK.around():
            sink.take_back(taken)

    def _checkpoint(
        self,
        kept: Sequence[SinkName],
        *,
        yes: bool,
        keeps_plan: bool = False,
        require_newest: Callable[[], None] | None = None,
    ) -> Performed:
        """Return what setting the checkpoint back means; with `yes` do it, in files that are as they were read (see `perform`).

        Where sinks keep the batches, the plan of the first one stays: Spark does it again with the same input. If it is not
        there, that is refused with `keeps_plan`, and planned anew without: an act that is recorded can always be carried out.
        """
        files = self.runtime.checkpoint.files
        place = f"offsets/{self.to_batch + 1}"

        def plan() -> Act:
            act = self.way.plan(files, keeps_plan or (bool(kept) and files.size_bytes(place) is not None))
            if require_newest is not None:
                require_newest()  # after the reading: what a newer run changes since, `perform` finds changed
            return act

        return perform(files, verb=self.way.verb, request=self.way.request, plan=plan, yes=yes)

    # --- judging

    def _share(self, sink: Sink, act: Entry) -> SinkRewind:
        assert isinstance(act.body, Rewound)
        taken = taken_back(self.runtime.ledger, sink.name, after=act.body.to, before=act.position, generation=act.generation)
        return SinkRewind(sink=sink.name, totals=taken.totals, kept=sink.name in act.body.kept)

    def _of_sink(self, sink: Sink, target: Entry, tail: Entry) -> SinkRewind:
        end = Position(tail.position + 1)
        taken = taken_back(self.runtime.ledger, sink.name, after=target.position, before=end, generation=tail.generation)
        judged = SinkRewind(sink=sink.name, totals=taken.totals, kept=sink.name in self.keep)
        if judged.kept or not sink.exactly_once or not taken.publications:
            return judged
        if not isinstance(sink, TakesBack):
            return replace(judged, refused="what was delivered there cannot be taken back.")
        try:
            sink.require_taken_back_exactly(self._published(sink, taken, tail))
        except (Retryable, LedgerMismatch):
            raise
        except PenstockError as error:
            return replace(judged, refused=scrub(error.message))
        return judged

    def _published(self, sink: Sink, taken: TakenBack, tail: Entry) -> TakenBack:
        """Return `taken` without the newest decision if the sink's markers lack it: `act` publishes it first."""
        newest = tail.summary.decided_at
        accounts = {piece.account for each in taken.publications if each.position == newest for piece in each.staged}
        if newest is None or not isinstance(sink, HasMarker):
            return taken
        marks = [sink.high_water_mark(account, pipeline=self.runtime.pipeline) for account in accounts]
        if all(mark is not None and mark.position >= newest for mark in marks):
            return taken
        return replace(taken, publications=tuple(each for each in taken.publications if each.position != newest))

    def _events_gone(self, target: Entry) -> list[str]:
        """Return what is gone of the events of the batches to be done again. What cannot be looked at is in the lag."""
        with suppress(PenstockError, OSError):
            if self.runtime.journals is not None:
                return list(self.runtime.journals.gone(self._events_needed(self.runtime.journals, target)))
        return []

    def _hold_events(self) -> None:
        if self.runtime.journals is not None:
            target = decided_to(self.runtime.ledger, self.to_batch)
            self.runtime.journals.hold(self._events_needed(self.runtime.journals, target))

    def _events_needed(self, journals: Journals, target: Entry) -> Needed:
        tail = self.runtime.ledger.tail()
        newest = None if tail is None or tail.summary.decided_at is None else self.runtime.ledger.read(tail.summary.decided_at)
        before = decision_in(target).batch.offsets
        return journals.needed_again(before, before if newest is None else decision_in(newest).batch.offsets)

    def _files_gone(self, target: Entry, newest: BatchId) -> tuple[list[str], list[str]]:
        """Return input files of the batches to be done again that are gone, and the batches whose files could not be named."""
        names = tuple(each.source for each in decision_in(target).batch.offsets)
        found, unseen = list[str](), list[str]()
        for number in map(BatchId, range(self.to_batch + 1, newest + 1)):
            try:
                found += self._files_gone_of(number, names)
            except (CheckpointDamaged, SourcesChanged):  # set back by hand, or a relation that the query reads twice
                unseen.append(f"The checkpoint does not tell which files batch {number} read: make sure that they are there.")
        return found, unseen

    def _files_gone_of(self, batch_id: BatchId, names: Sequence[SourceName]) -> Iterator[str]:
        for source, files in self._input_files(batch_id, names).items():
            states = self.runtime.checkpoint.inputs.at(files)
            gone = [file for file, state in zip(files, states, strict=True) if state is not None and state.size_bytes is None]
            if gone:
                yield f"{len(gone)} of {len(files)} files of batch {batch_id} of source {source}, {gone[0].path} for one"

    def _input_files(self, batch_id: BatchId, names: Sequence[SourceName]) -> Mapping[SourceName, Sequence[InputFile]]:
        """Return the input files of a decided batch, from its decision; where that lists none, from the checkpoint."""
        decision = decision_of(self.runtime.ledger, batch_id)
        if decision is not None and decision.evidence.files:
            return {read.source: read.files for read in decision.evidence.files}
        if decision is not None and not any(is_fingerprint(each.content) for each in decision.batch.offsets):
            return {}
        return self.runtime.checkpoint.input_files(batch_id, names)


def _unfinished(ledger: Ledger) -> Entry | None:
    tail = ledger.tail()
    at = None if tail is None else tail.summary.rewinding_at
    return None if at is None else ledger.read(at)


def _require_possible(planned: Rewind, way: CheckpointWay) -> None:
    """Raise Refused if the act could not be carried out exactly."""
    stuck = [each for each in planned.sinks if each.refused]
    if stuck:
        reasons = " ".join(f"Sink {each.sink!r}: {each.refused}" for each in stuck)
        keeping = " ".join(f"--keep {each.sink}" for each in stuck)
        raise Refused(
            f"The batches after {planned.to_batch} cannot be taken back from every sink. {reasons}",
            remedy=f"Leave them there with `{keeping}`: such a sink skips the batches when they come again."
            if not way.replaces
            else _TAKE_OUT,
        )
    if planned.lost:
        raise Refused(
            f"The batches after {planned.to_batch} could not be done again: gone are {'; '.join(planned.lost)}.",
            remedy="Put the input back, or rewind to a later batch.",
        )
