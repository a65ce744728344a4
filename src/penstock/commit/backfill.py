"""A backfill: which earlier batches a sink that was added later lacks, by the ledger alone, and how it is given them.

Each batch is decided once more, for this sink, by an entry of its own; then the sink publishes it. So a repetition is recognised
as that of any batch is: by the sink's marker, which holds the position of that entry. The sink may take part in the pipeline
again when the last one is published, and the ledger says so.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from penstock.commit.acts import ActingCoordinator
from penstock.commit.publication import batch_at, decision_in, sinks_apart, standing
from penstock.core.backfill import BackfillProgress
from penstock.core.bad_record import NAME
from penstock.core.model import (
    Adopted,
    BatchId,
    Decided,
    Decision,
    Entry,
    Opened,
    Position,
    Published,
    Rewound,
    SinkName,
    Summary,
)
from penstock.errors import Refused
from penstock.protocols import Ledger, Sink


@dataclass(frozen=True, slots=True, kw_only=True)
class LackingBatches:
    """The batches that a sink lacks, oldest first, each as the entry that decided it. Batches without rows are left out.

    `given`: how many a backfill has given it already. `joined` is the first batch of the range of which the sink has rows by the
    pipeline itself, None if there is none. `unknown` counts batches that the ledger does not tell any more, from `first` on;
    `earlier` those of checkpoints before the present one. `begun`: a backfill has begun and not ended. `begins` is the position
    of the first one that it lacks, or behind what was looked at.
    """

    sink: SinkName
    entries: tuple[Entry, ...]
    first: BatchId
    begins: Position
    given: int = 0
    joined: BatchId | None = None
    unknown: int = 0
    earlier: int = 0
    begun: bool = False

    @property
    def joins_in_between(self) -> bool:
        """Whether the sink has rows of a batch that is newer than one that it lacks."""
        if self.joined is None or not self.entries:
            return False
        return decision_in(self.entries[0]).batch.batch_id < self.joined


def lacking_batches(ledger: Ledger, sink: SinkName, *, from_batch: BatchId | None) -> LackingBatches:
    """Return what `sink` lacks from batch `from_batch` on (None: from the first one). Reads every retained entry.

    If a backfill of the sink has begun and not ended, it goes on where it is. Raises Refused if `from_batch` names batches before
    those that the sink was given, since batches come in their order, would leave some of the others out, or was not decided.
    """
    tail = ledger.tail()
    range_ = _Range.of(ledger, sink, progress=None if tail is None else tail.summary.backfills.get(sink))
    if range_.progress is not None and from_batch is not None:
        range_.require_not_before(range_.progress, from_batch)
    begun = range_.progress is not None and not (range_.progress.ended and not range_.progress.apart)
    chosen = BatchId(0) if from_batch is None or begun else from_batch
    decided = [entry for entry in range_.present if decision_in(entry).batch.batch_id >= chosen and range_.is_behind(entry)]
    is_whole = from_batch is None or begun
    first, unknown = range_.unknown(chosen) if is_whole or range_.progress is None else (chosen, 0)
    entries = tuple(filter(range_.is_lacking, decided))
    if begun and from_batch is not None:
        _require_no_gap(sink, entries, from_batch)
    elif from_batch is not None:
        _require_decided(tail, from_batch)
    return LackingBatches(
        sink=sink,
        entries=entries,
        begins=entries[0].position if entries else Position(1 if tail is None else tail.position + 1),
        given=sum(map(range_.was_given, decided)),
        joined=next((decision_in(entry).batch.batch_id for entry in decided if takes_part_of(entry, sink)), None),
        first=first,
        unknown=unknown,
        earlier=sum(map(range_.is_lacking, filter(range_.is_behind, range_.before))) if is_whole else 0,
        begun=begun,
    )


def _require_decided(tail: Entry | None, from_batch: BatchId) -> None:
    """Raise Refused if the present checkpoint has not come to `from_batch`: the sink would seem to have everything."""
    following = None if tail is None else tail.summary.next_batch_id
    if following and from_batch >= following:  # 0 is the first batch of a new checkpoint, and older ones may be meant
        raise Refused(
            f"Batch {from_batch} was not delivered: the ledger has decided batches up to {following - 1}.",
            remedy="Name a batch that `penstock history FILE` lists.",
        )


def _require_no_gap(sink: SinkName, entries: Sequence[Entry], from_batch: BatchId) -> None:
    """Raise Refused if a backfill that has begun would leave some of the batches in `entries` out."""
    goes_on = decision_in(entries[0]).batch.batch_id if entries else from_batch
    if goes_on < from_batch:
        raise Refused(
            f"A backfill of sink {sink!r} has begun and goes on with batch {goes_on}; --from-batch {from_batch} leaves a gap.",
            remedy="Leave --from-batch out. To do without the batches before, give the sink another name and an empty place: "
            f"`penstock backfill FILE --sink NAME --from-batch {from_batch}`",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Range:
    """The retained decisions, oldest first: `present` those of the present checkpoint, `before` those of earlier ones.

    `progress` is that of the sink's backfill, and `newest` the batch that it gave last. `oldest` is the oldest retained position.
    """

    sink: SinkName
    progress: BackfillProgress | None
    newest: BatchId | None
    present: tuple[Entry, ...]
    before: tuple[Entry, ...]
    oldest: Position

    @classmethod
    def of(cls, ledger: Ledger, sink: SinkName, *, progress: BackfillProgress | None) -> "_Range":
        present, before, oldest = list[Entry](), list[Entry](), Position(0)
        decided = present
        for entry in standing(_require_tells(ledger, sink)):
            oldest = entry.position
            if isinstance(entry.body, Adopted) and not entry.body.gaps:
                decided = before
            elif isinstance(entry.body, Decided):
                decided.append(entry)
        return cls(
            sink=sink,
            progress=progress,
            newest=None if progress is None else batch_at(ledger, progress.newest),
            present=tuple(present[::-1]),
            before=tuple(before[::-1]),
            oldest=oldest,
        )

    def is_behind(self, entry: Entry) -> bool:
        """Return whether the entry is none of those before the backfill's first one, which were left out by choice."""
        return self.progress is None or entry.position >= self.progress.first

    def was_given(self, entry: Entry) -> bool:
        progress = self.progress
        is_in = progress is not None and progress.first <= entry.position <= progress.through
        return is_in and decision_in(entry).rows_in > 0 and not takes_part_of(entry, self.sink)

    def is_lacking(self, entry: Entry) -> bool:
        return decision_in(entry).rows_in > 0 and not takes_part_of(entry, self.sink) and not self.was_given(entry)

    def unknown(self, chosen: BatchId) -> tuple[BatchId, int]:
        """Return the first batch that the ledger does not tell any more, and how many there are."""
        oldest = decision_in(self.present[0]).batch.batch_id if self.present else chosen
        if self.progress is None:
            return chosen, max(0, oldest - chosen)
        if self.oldest <= self.progress.through + 1:
            return chosen, 0
        first = BatchId(0 if self.newest is None else self.newest + 1)
        return first, max(1, oldest - first)

    def require_not_before(self, progress: BackfillProgress, from_batch: BatchId) -> None:
        begun = next((decision_in(entry).batch.batch_id for entry in self.present if entry.position >= progress.first), None)
        wanted = any(
            from_batch <= decision_in(entry).batch.batch_id and not self.is_behind(entry) and self.is_lacking(entry)
            for entry in self.present
        )
        if begun is not None and wanted:
            raise Refused(
                f"Sink {self.sink!r} was given batches from {begun} on, and batches before that, from {from_batch} on, are asked "
                "for: batches come in their order.",
                remedy="Leave --from-batch out. To have all of them, give the sink another name and an empty place.",
            )


def _require_tells(ledger: Ledger, sink: SinkName) -> Iterator[Entry]:
    """Yield the entries from the tail backwards. Raises Refused if they may not tell what the sink has.

    A sink that kept batches which were taken back from others has no part in the decisions that repeat them.
    """
    oldest: Entry | None = None
    for oldest in ledger.newest_first():
        if isinstance(oldest.body, Rewound) and sink in oldest.body.kept:
            raise _kept_ahead(sink)
        yield oldest
    if oldest is not None and oldest.summary.rewound_at is not None and sink in oldest.summary.totals:
        raise _kept_ahead(sink)


def _kept_ahead(sink: SinkName) -> Refused:
    return Refused(
        f"Sink {sink!r} kept batches when the pipeline was rewound, or may have: the ledger does not tell which ones it lacks.",
        remedy="Give the sink another name and an empty place, and let `penstock backfill` fill that.",
    )


def takes_part_of(entry: Entry, sink: SinkName) -> bool:
    """Return whether the pipeline itself gave the sink a part of the batch, an empty selection included."""
    decision = decision_in(entry)
    return sink in decision.schemas or bool(decision.of_sink(sink))


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What one call gave a sink: the outcome of each batch. `recovered`: of one that an earlier call decided, None without it."""

    recovered: Published | None
    batches: tuple[Published, ...]


def give_lacking(
    coordinator: ActingCoordinator,
    sink: Sink,
    opened: Opened,
    *,
    lacking: Callable[[], Sequence[Entry]],
    stage: Callable[[Entry], Decision],
) -> Given:
    """Fence, publish what an earlier call decided, and give `sink` batch by batch what `lacking` returns then.

    `stage` stages the batch of an entry for the sink alone. Raises what they raise, Fenced, and what publishing raises. May be
    called again after any end, with another coordinator: it goes on where it stopped.
    """
    coordinator.open(opened)  # I9
    recovered = coordinator.publish_backfilled(sink)  # I1
    given = [coordinator.backfill(sink, stage(entry), original=entry.position) for entry in lacking()]  # I5
    coordinator.settle(opened, backfilled=sink.name)
    coordinator.sweep()  # I10
    return Given(recovered=recovered, batches=tuple(given))


def require_backfilled(summary: Summary, sinks: Iterable[Sink]) -> None:
    """Raise Refused if one of `sinks` has only a part of the earlier batches: rows would come out of order, or leave a gap."""
    names = [sink.name for sink in sinks]
    name = next((name for name in names if name in sinks_apart(summary)), None)
    if name is not None:
        raise _has_a_part(name, "")
    require_joinable(summary, names)


def require_joinable(summary: Summary, sinks: Collection[SinkName]) -> None:
    """Raise Refused if a start has to wait for a backfill of one of `sinks`: one that fences, or of all sinks that it has.

    What a backfill beside the driver has begun does not keep a start from the other sinks.
    """
    begun = {name for name, progress in summary.backfills.items() if not progress.ended and not progress.apart}
    name = next((name for name in sinks if name in begun), None)
    if name is not None:
        raise _has_a_part(name, " To run without that sink meanwhile, take it out of the file.")
    waiting = [name for name, progress in summary.backfills.items() if name in sinks and progress.apart and not progress.is_level]
    if waiting and not set(sinks) - {*waiting, NAME}:
        raise _has_a_part(waiting[0], " The pipeline has no other sink to run with meanwhile.")


def _has_a_part(name: SinkName, meanwhile: str) -> Refused:
    return Refused(
        f"A backfill of sink {name!r} has begun and not ended, so the sink has only a part of the earlier batches.",
        remedy=f"Let `penstock backfill FILE --sink {name}` finish; it goes on where it stopped.{meanwhile}",
    )
