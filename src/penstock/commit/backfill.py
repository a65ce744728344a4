"""A backfill: which earlier batches a sink that was added later lacks, by the ledger alone, and how it is given them.

Each batch is decided once more, for this sink, by an entry of its own; then the sink publishes it. So a repetition is recognised
as that of any batch is: by the sink's marker, which holds the position of that entry. The sink may take part in the pipeline
again when the last one is published, and the ledger says so.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from penstock.commit.coordinator import Coordinator
from penstock.commit.publication import decision_in
from penstock.core.backfill import BackfillProgress
from penstock.core.model import Adopted, BatchId, Decided, Decision, Entry, Opened, Published, SinkName, Summary
from penstock.errors import Refused
from penstock.protocols import Ledger, Sink


@dataclass(frozen=True, slots=True, kw_only=True)
class LackingBatches:
    """The batches that a sink lacks, oldest first, each as the entry that decided it. Batches without rows are left out.

    `given`: how many of the range a backfill has given it already. `joined` is the first batch of the range of which the sink
    has rows by the pipeline itself, None if there is none. `unknown` counts batches of the range that the ledger does not tell;
    `earlier` those of checkpoints before the present one. `first` is the range's first batch.
    """

    sink: SinkName
    first: BatchId
    entries: tuple[Entry, ...]
    given: int = 0
    joined: BatchId | None = None
    unknown: int = 0
    earlier: int = 0

    @property
    def joins_in_between(self) -> bool:
        """Whether the sink has rows of a batch that is newer than one that it lacks."""
        if self.joined is None or not self.entries:
            return False
        return decision_in(self.entries[0]).batch.batch_id < self.joined


def lacking_batches(ledger: Ledger, sink: SinkName, *, from_batch: BatchId | None) -> LackingBatches:
    """Return what `sink` lacks from batch `from_batch` on (None: from the first one). Reads every retained entry of the range.

    Where a backfill of the sink has begun, the range begins with its first batch instead. Raises Refused for an earlier
    `from_batch`: batches must come in their order.
    """
    tail = ledger.tail()
    progress = None if tail is None else tail.summary.backfills.get(sink)
    first = BatchId(0) if from_batch is None else from_batch
    decided, earlier = _present_checkpoint(ledger.newest_first(), first)
    if progress is not None:
        _require_not_before(progress, decided, sink, from_batch)
        decided, earlier = [entry for entry in decided if entry.position >= progress.first], 0
        first = max(first, *(decision_in(entry).batch.batch_id for entry in decided[:1]), BatchId(0))
    lacking, given, joined = list[Entry](), 0, None
    for entry in decided:
        decision = decision_in(entry)
        if not decision.rows_in:
            continue
        if sink in decision.schemas or decision.of_sink(sink):
            joined = decision.batch.batch_id if joined is None else joined
        elif progress is not None and progress.first <= entry.position <= progress.through:
            given += 1
        else:
            lacking.append(entry)
    oldest = decision_in(decided[0]).batch.batch_id if decided else first
    return LackingBatches(
        sink=sink,
        first=first,
        entries=tuple(lacking),
        given=given,
        joined=joined,
        unknown=max(0, oldest - first),
        earlier=earlier if from_batch is None else 0,
    )


def _require_not_before(progress: BackfillProgress, decided: list[Entry], sink: SinkName, from_batch: BatchId | None) -> None:
    begun = next((entry for entry in decided if entry.position >= progress.first), None)
    if from_batch is None or begun is None:
        return
    first = decision_in(begun).batch.batch_id
    if from_batch < first and any(entry.position < progress.first and decision_in(entry).rows_in for entry in decided):
        raise Refused(
            f"Sink {sink!r} was given batches from {first} on, and batches before that, from {from_batch} on, are asked for: "
            "batches come in their order.",
            remedy="Leave --from-batch out. To have all of them, give the sink another name and an empty place.",
        )


def _present_checkpoint(newest_first: Iterable[Entry], first: BatchId) -> tuple[list[Entry], int]:
    """Return the decisions of the present checkpoint from batch `first` on, oldest first, and the number of others with rows."""
    present, earlier, is_present = list[Entry](), 0, True
    for entry in newest_first:
        if isinstance(entry.body, Adopted) and not entry.body.gaps:
            is_present = False
        elif isinstance(entry.body, Decided):
            if not is_present:
                earlier += bool(entry.body.decision.rows_in)
            elif entry.body.decision.batch.batch_id >= first:
                present.append(entry)
    return present[::-1], earlier


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What one call gave a sink: the outcome of each batch. `recovered`: of one that an earlier call decided, None without it."""

    recovered: Published | None
    batches: tuple[Published, ...]


def give_lacking(
    coordinator: Coordinator,
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
    """Raise Refused if a backfill of one of `sinks` has begun and not ended: its rows would come out of order, or leave a gap."""
    name = next(_unfinished(summary, sinks), None)
    if name is not None:
        raise Refused(
            f"A backfill of sink {name!r} has begun and not ended, so the sink has only a part of the earlier batches.",
            remedy=f"Let `penstock backfill FILE --sink {name}` finish; it goes on where it stopped. To run without that sink "
            "meanwhile, take it out of the file.",
        )


def _unfinished(summary: Summary, sinks: Iterable[Sink]) -> Iterator[SinkName]:
    for sink in sinks:
        progress = summary.backfills.get(sink.name)
        if progress is not None and not progress.ended:
            yield sink.name
