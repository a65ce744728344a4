"""A backfill beside a running driver: two processes append to one ledger, and neither fences the other.

From `BackfillOpened` on the driver decides without the sink, and this process alone gives it anything. `BackfillEnded` stands
directly behind an entry up to which the sink lacks nothing: the append is conditional, so no decision comes in between. From
there on the driver decides with the sink. So each batch is given by exactly one of the two.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from penstock.commit.acts import ActingCoordinator
from penstock.commit.append import append_once
from penstock.commit.backfill import takes_part_of
from penstock.commit.coordinator import ActAheadError
from penstock.commit.publication import decision_in, standing, waiting_backfill_of
from penstock.commit.rewind import require_rewound
from penstock.commit.summary import after_backfill_ended, after_backfill_opened
from penstock.commit.upkeep import sweep_sinks
from penstock.core.backfill import BackfillEnded, BackfillOpened, BackfillProgress
from penstock.core.model import (
    Adopted,
    Decided,
    Decision,
    Entry,
    Generation,
    Opened,
    Position,
    Published,
    SinkName,
    Summary,
)
from penstock.errors import Fenced, Retryable
from penstock.protocols import Ledger, Sink


def is_apart_or_absent(ledger: Ledger, sink: SinkName) -> bool:
    """Return whether no run decides for the sink: it is apart, or the newest run lacks it. Reads the entries of that run.

    False where the ledger does not tell, and after a backfill that fences was killed: the next call goes on in the same way.
    """
    tail = ledger.tail()
    progress = None if tail is None else tail.summary.backfills.get(sink)
    if progress is not None and progress.apart:
        return True
    if progress is not None and not progress.ended:
        return False
    opened = next((entry.body for entry in ledger.newest_first() if isinstance(entry.body, Opened)), None)
    return opened is not None and sink not in opened.sinks


class BesideCoordinator(ActingCoordinator):
    """Gives one sink earlier batches beside the driver. Its entries fence nobody, and go behind those of the driver.

    It is fenced by a newer `BackfillOpened` of the sink, and by a rewind or an adoption, which change what the sink lacks.
    """

    _since: tuple[BackfillOpened, Summary]

    def open_beside(self, opened: BackfillOpened, *, generation: Generation, first: Position) -> None:
        """Have the driver decide without the sink, and fence every older backfill of it. `first`: where what it lacks begins.

        Raises Retryable if another run than that of `generation` opened the pipeline: it may decide for the sink.
        """
        tail = self._ledger.tail()
        assert tail is not None
        require_rewound(tail.summary, self._ledger)
        self._tail, self._since = tail, (opened, tail.summary)

        def entry_after(tail: Entry) -> Entry:
            if tail.generation != generation:
                raise Retryable("A run was started at the same moment.", remedy="Call `penstock backfill` again.")
            return self._entry(opened, summary=after_backfill_opened(tail.summary, opened, first=first), after=tail)

        self._append_behind(entry_after)  # I2, I9
        self._spent = False

    @property
    def progress(self) -> BackfillProgress:
        """How far the sink is, as of this coordinator's newest look at the ledger."""
        return self.summary.backfills[self._since[0].sink]

    def end_behind(self, tail: Entry) -> bool:
        """Let the sink join the run that has it, if `tail`, up to which it lacks nothing, is the ledger's end still.

        Where the newest run lacks the sink it stays apart: the next one that has it joins it, unless there are new batches then.
        Return whether that is recorded.
        """
        self._follow(tail)
        if not self.progress.apart:
            return True
        ended = BackfillEnded(sink=self._since[0].sink, joins=self.progress.awaited)
        entry = self._entry(ended, summary=after_backfill_ended(tail.summary, ended), after=tail)
        if append_once(self._ledger, entry, retrying=self._retrying) is not None:
            return False
        self._tail = entry
        return True

    def sweep(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Collect what older backfills staged and nobody can decide any more. Returns its names, and warnings."""
        waiting = waiting_backfill_of(self._ledger, self.summary, self._since[0].sink)
        return sweep_sinks(self._sinks, self._open_tail(), waiting, waiting=())

    def require_newest(self) -> None:
        """Raise Fenced if another process gives the sink its batches by now, or what it lacks was changed."""
        tail = self._ledger.tail()
        if tail is not None:
            self._require_own(tail)

    def _publish_replay(self) -> dict[SinkName, Published]:
        return {}  # the driver does

    def _go_behind(self, found: Entry | None, entry: Entry) -> None:  # noqa: ARG002 - whoever wrote what is there
        tail = self._ledger.tail() or found
        assert tail is not None
        self._follow(tail)
        raise ActAheadError

    def _follow(self, tail: Entry) -> None:
        """Take the ledger's newest entry, whoever wrote it, for the tail. Raises Fenced."""
        self._require_own(tail)
        self._tail = tail

    def _require_own(self, tail: Entry) -> None:
        (opened, since), summary = self._since, tail.summary
        progress = summary.backfills.get(opened.sink)
        if self._spent:  # it has not begun
            return
        if progress is None or progress.writer != opened.writer:
            raise Fenced(
                f"Another backfill of sink {opened.sink!r} has begun since.",
                remedy="Let it work, or stop it before you start another.",
            )
        if (summary.rewound_at, summary.adopted_at) != (since.rewound_at, since.adopted_at):
            raise Fenced(
                f"The pipeline was rewound, or another checkpoint adopted, while sink {opened.sink!r} was given batches.",
                remedy=f"Let `penstock backfill FILE --sink {opened.sink}` look again at what the sink lacks.",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenBeside:
    """What one call gave a sink. `recovered`: see `Given`. `joined`: the run that has the sink decides with it from now on."""

    recovered: Published | None
    batches: tuple[Published, ...]
    joined: bool


def give_beside(coordinator: BesideCoordinator, sink: Sink, ledger: Ledger, *, stage: Callable[[Entry], Decision]) -> GivenBeside:
    """Publish what an earlier call decided, give `sink` what it lacks, also what is decided meanwhile, and let it join.

    `stage` stages the batch of an entry for the sink alone. Called after `open_beside`. Raises what they raise, Fenced, and what
    publishing raises. May be called again after any end, with another coordinator: it goes on where it stopped.
    """
    recovered = coordinator.publish_backfilled(sink)  # I1
    coordinator.sweep()  # I10
    given = list[Published]()
    while True:
        tail, lacking = _lacking_behind(ledger, sink.name)
        if not lacking and coordinator.end_behind(tail):  # I1, I2: here the sink joins
            return GivenBeside(recovered=recovered, batches=tuple(given), joined=not coordinator.progress.apart)
        given += (coordinator.backfill(sink, stage(entry), original=entry.position) for entry in lacking)  # I5


def _lacking_behind(ledger: Ledger, sink: SinkName) -> tuple[Entry, Sequence[Entry]]:
    """Return the ledger's tail, and the batches with rows behind what the sink was given, up to there, oldest first."""
    newest_first = ledger.newest_first()
    tail = next(newest_first)
    behind = _behind(chain([tail], newest_first), tail.summary.backfills[sink].through)
    decided = (entry for entry in standing(behind) if isinstance(entry.body, Decided) and decision_in(entry).rows_in)
    return tail, tuple(entry for entry in decided if not takes_part_of(entry, sink))[::-1]


def _behind(newest_first: Iterable[Entry], position: Position) -> Iterator[Entry]:
    """Yield the entries behind `position`, of the present checkpoint alone."""
    for entry in newest_first:
        if entry.position <= position or (isinstance(entry.body, Adopted) and not entry.body.gaps):
            return
        yield entry
