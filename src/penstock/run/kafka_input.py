"""What a run asks of Kafka: whether it still has what the next batch needs, which gaps there are, and which reader goes on."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from penstock.checkpoint.repair import Moves, entries_before_moves, move_offsets, read_newest_entries
from penstock.checkpoint.spark_checkpoint import SparkCheckpoint
from penstock.commit.publication import continued_decision
from penstock.core.kafka_offset import beginning_in, ids_in, topic_offsets_in
from penstock.core.model import Batch, BatchId, Finding, OffsetRange, SourceName, Summary
from penstock.core.topics import GapAccepted, GapKind, TopicRead
from penstock.errors import InputLost, PenstockError, Refused, Retryable
from penstock.protocols import Ledger
from penstock.source.kafka.gaps import describe_gaps, within
from penstock.source.kafka.options import client_options, require_named
from penstock.source.kafka.reader.settings import FORMAT
from penstock.source.kafka.watch import TopicsSeen, Watch, kafka_sources
from penstock.spec.pipeline import DeliverySettings
from penstock.spec.source import Source
from penstock.transform.plan import plan_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.source.kafka.mirror import Mirror


LOOK_S = 10.0
"""Seconds between two checks of a waiting batch whether Kafka has its records again."""

_READ_OVER = GapKind.EXPIRED
"""The kind of gap that Spark reads over by itself; every other kind needs another position in Spark's checkpoint."""
_FOR_STATE = (
    "They are delivered, but Spark needs them once more for the query's state, which must come from all of them: bring them "
    "back, or read what `penstock adopt` says about starting with a new checkpoint."
)
_Place: TypeAlias = tuple[SourceName, str, str, int]
"""Source, topic, topic id, and partition."""
_log = logging.getLogger(__name__)


def known_topics(ledger: Ledger, summary: Summary) -> tuple[TopicRead, ...]:
    """Return the topics as the newest decision read them, without those that were moved behind a gap since.

    None at all if another checkpoint was adopted since.
    """
    found = continued_decision(ledger, summary)
    if found is None:
        return ()
    decision, moved = found
    return tuple(read for read in decision.evidence.topics if (read.source, read.topic) not in moved)


class KafkaInput:
    """One run's checks of Kafka. `names` gives the sources of a batch in the order of the plan."""

    def __init__(
        self, watch: Watch, *, ledger: Ledger, checkpoint: SparkCheckpoint, names: Callable[[BatchId], Sequence[SourceName]]
    ) -> None:
        self._watch = watch
        self._ledger = ledger
        self._checkpoint = checkpoint
        self._names = names
        self._known: tuple[TopicRead, ...] = ()
        self._read: tuple[TopicRead, ...] = ()
        self._delivered: Mapping[_Place, int] = {}
        self._gap_ends: Mapping[tuple[SourceName, str, int], int] | None = None

    def require(self, summary: Summary) -> TopicsSeen:
        """Check what Spark reads next, before it starts. Raises SourcesChanged, InputLost, Retryable (the source is to wait)."""
        self._known = self._read = known_topics(self._ledger, summary)
        self._delivered = _ends(self._known)
        planned = self._checkpoint.latest_offsets_id()
        ranges = upcoming(self._checkpoint, self._names, summary)
        for each in ranges:
            if each.source in self._watch.sources:
                require_named(each.source, self._watch.sources[each.source], topic_offsets_in(each.start))
        noted = () if planned is None else self._noted(planned, ranges)
        seen = self._watch.look(ranges, known=(*noted, *self._known))
        if seen.gaps and is_read_for_state_only(self._checkpoint, summary):
            raise InputLost(describe_gaps(seen.gaps, now=seen.now), remedy=_FOR_STATE)
        stop = _first_unaccepted(self._watch, seen)
        if stop is None:
            return seen
        if self._watch.sources[stop.source].on_gap == "wait":
            raise Retryable(
                describe_gaps(seen.gaps, now=seen.now),
                remedy="Start again when Kafka has them; `on_gap: accept` goes on without.",
            )
        raise _lost(seen)

    def skip_gaps(self, summary: Summary, *, require_newest: Callable[[], None]) -> tuple[GapAccepted, ...]:
        """Move Spark's checkpoint behind accepted gaps that Spark does not read over. Return these gaps, for the ledger.

        Only for a run that has fenced all others; `require_newest` raises if a newer one has opened since. Offsets that a batch
        was decided with are not moved; a later start moves them. Raises Retryable if another run changed the checkpoint since,
        InputLost, and what `require` raises.
        """
        seen = self.require(summary)
        planned = self._checkpoint.latest_offsets_id()
        if planned is None or (_is_uncommitted(self._checkpoint, planned) and _is_decided(summary, planned)):
            return ()
        gaps = self._with_unrecorded(tuple(gap for gap in seen.gaps if gap.kind is not _READ_OVER), seen, summary)
        if not gaps:
            return ()
        if planned == 0 and _is_uncommitted(self._checkpoint, planned):
            raise InputLost(
                describe_gaps(gaps, now=seen.now),
                remedy=f"Nothing was delivered yet: remove the checkpoint {self._checkpoint.location} and start again.",
            )
        entries = read_newest_entries(self._checkpoint, planned, self._names(planned))
        require_newest()
        move_offsets(self._checkpoint, entries, _moves(seen, gaps))
        self._known = self._read = seen.topics
        self._delivered = {}
        return gaps

    def _with_unrecorded(self, gaps: Sequence[GapAccepted], seen: TopicsSeen, summary: Summary) -> tuple[GapAccepted, ...]:
        """Return `gaps`, and those behind which an earlier run moved the checkpoint but ended before it recorded them.

        The checkpoint does not show them any more, and a topic that lost its end may have grown beyond it since.
        """
        found = {(gap.source, gap.topic, gap.partition): gap for gap in gaps}
        known = {(read.source, read.topic): read for read in self._known}
        for source, topic, number, moved, decided in self._moved_back(summary):
            read, now = known.get((source, topic)), seen.now.get((source, topic))
            if read is None or now is None:
                continue
            place = (source, topic, number)
            if read.topic_id != now.topic_id:
                of = read.partitions.get(number)
                kind, first, end = GapKind.RECREATED, decided, decided if of is None else max(decided, of.high)
            else:
                shown = found.get(place)
                kind, first = GapKind.TRUNCATED, moved if shown is None else min(moved, shown.first)
                end = decided if shown is None else max(decided, shown.end)
            found[place] = GapAccepted(
                kind=kind, source=source, topic=topic, topic_id=read.topic_id, partition=number, first=first, end=end
            )
        return tuple(found.values())

    def _moved_back(self, summary: Summary) -> Iterator[tuple[SourceName, str, int, int, int]]:
        """Yield partitions whose newest decision ends elsewhere than the checkpoint says, because Penstock moved the checkpoint.

        Each comes with its offset in the checkpoint and the decided one. A copy of the entry before the move is the proof: it is
        as decided, but for topics of which the ledger has the move.
        """
        found = continued_decision(self._ledger, summary)
        if found is None:
            return
        batch, moved = found[0].batch, found[1]
        entry, copies = self._checkpoint.offsets(batch.batch_id), entries_before_moves(self._checkpoint, batch.batch_id)
        if entry is None or not copies:
            return
        keys = self._checkpoint.keys(batch.batch_id, self._names(batch.batch_id))
        for each in batch.offsets:
            if each.source not in self._watch.sources or self._watch.sources[each.source].on_gap != "accept":
                continue
            key, decided = keys[each.source][0], topic_offsets_in(each.end)
            here = topic_offsets_in(entry.offsets.get(key))
            before = {topic: here.get(topic, ends) if (each.source, topic) in moved else ends for topic, ends in decided.items()}
            if any(topic_offsets_in(copy.offsets.get(key)) == before for copy in copies):
                for topic, ends in before.items():
                    at = here.get(topic, {})
                    yield from (
                        (each.source, topic, number, at.get(number, 0), end)
                        for number, end in ends.items()
                        if at.get(number) != end
                    )

    def before(self, batch: Batch, *, wait: Callable[[float], None]) -> TopicsSeen:
        """Look at Kafka before the rows of `batch` are read. `wait` lets some seconds pass, or raises what ends the waiting.

        Raises InputLost, Refused, Retryable.
        """
        ranges = self._ranges(batch)
        noted = self._noted(batch.batch_id, ranges)
        while True:
            seen = self._watch.look(ranges, known=(*noted, *self._known))
            self._require_undelivered(batch, seen)
            stop = _first_unaccepted(self._watch, seen)
            if stop is None:
                self._require_read_over(seen)
                return seen
            if self._watch.sources[stop.source].on_gap != "wait":
                raise _lost(seen)
            _log.warning("batch %s waits: %s", batch.batch_id, describe_gaps(seen.gaps, now=seen.now))
            wait(LOOK_S)

    def after(self, batch: Batch, seen: TopicsSeen) -> TopicsSeen:
        """Look again when the rows are read but not decided: Kafka must have had all of them meanwhile. Raises Retryable."""
        again = self._watch.look(self._ranges(batch), known=seen.topics)
        ends = {each.source: topic_offsets_in(each.end) for each in batch.offsets if each.source in self._watch.sources}
        before, after = (tuple(part for gap in look.gaps for part in within(gap, ends[gap.source])) for look in (seen, again))
        if before != after:
            raise Retryable(
                f"Kafka removed records of batch {batch.batch_id} while it was read. {describe_gaps(again.gaps, now=again.now)}",
                remedy="Start again: nothing of it was decided.",
            )
        self._read = again.topics
        return replace(again, gaps=after)

    def delivered(self) -> tuple[TopicRead, ...]:
        """Count the batch of the last look as decided: if it is not, this run ends. Return its topics for the next batch."""
        self._known = self._read
        self._delivered = {**self._delivered, **_ends(self._known)}
        return self._known

    def _require_undelivered(self, batch: Batch, seen: TopicsSeen) -> None:
        """Raise Refused for a batch that reads a partition below where the one before ended: those records would come twice.

        Where a topic is missing from Spark's offsets for a moment, Spark reads it from its first record when it is back.
        """
        for read in seen.topics:
            for number, of in read.partitions.items():
                end = self._delivered.get((read.source, read.topic, read.topic_id, number), 0)
                if of.start < min(end, of.end):
                    raise Refused(
                        f"Batch {batch.batch_id} reads topic {read.topic!r}, partition {number}, from offset {of.start} on, "
                        f"but it is delivered up to offset {end - 1}.",
                        remedy="Restore the checkpoint from a copy; `penstock adopt` says what it means to go on with this one.",
                    )

    def _require_read_over(self, seen: TopicsSeen) -> None:
        """Raise Retryable unless Spark will pass over exactly what is missing.

        In mid-run Spark may still hold records from an earlier fetch that Kafka has dropped since. It would deliver some that are
        noted as lost.
        """
        ends = {(gap.source, gap.topic, gap.partition): gap.end for gap in seen.gaps}
        if self._gap_ends is None:
            self._gap_ends = ends
        opened = any(end > self._gap_ends.get(partition, -1) for partition, end in ends.items())
        if opened or any(gap.kind is not _READ_OVER for gap in seen.gaps):
            raise Retryable(
                describe_gaps(seen.gaps, now=seen.now),
                remedy="Start again: with `on_gap: accept` the next start goes on with the first record there is.",
            )

    def _noted(self, batch_id: BatchId, ranges: Sequence[OffsetRange]) -> tuple[TopicRead, ...]:
        """Return the topic ids that Penstock's own reader noted for the batch; none if the newest decision has all of them."""
        known = {(read.source, read.topic) for read in self._known}
        if known.issuperset(_topics_of(each for each in ranges if each.source in self._watch.sources)):
            return ()
        names = self._names(batch_id)
        entry = self._checkpoint.offsets(batch_id)
        offsets = {} if entry is None else entry.offsets
        return tuple(
            TopicRead(source=name, topic=topic, topic_id=topic_id, partitions={})
            for name, keys in self._checkpoint.keys(batch_id, names).items()
            if name in self._watch.sources
            for key in keys
            for topic, topic_id in ids_in(offsets.get(key)).items()
        )

    def _ranges(self, batch: Batch) -> tuple[OffsetRange, ...]:
        return with_beginnings(self._checkpoint, batch, self._names(batch.batch_id))


def upcoming(
    checkpoint: SparkCheckpoint, names: Callable[[BatchId], Sequence[SourceName]], summary: Summary
) -> tuple[OffsetRange, ...]:
    """Return what Spark reads next: the batch that it planned and must read again, or from the end of the newest one on."""
    planned = checkpoint.latest_offsets_id()
    if planned is None:
        return ()
    batch = checkpoint.batch(planned, names(planned))
    if _is_uncommitted(checkpoint, planned) and (not _is_decided(summary, planned) or checkpoint.has_state()):
        return with_beginnings(checkpoint, batch, names(planned))
    return tuple(OffsetRange(source=each.source, start=each.end, end=None) for each in batch.offsets)


def is_read_for_state_only(checkpoint: SparkCheckpoint, summary: Summary) -> bool:
    """Return whether Spark will read a decided batch again, for its state: no other rows may replace it, whatever the policy."""
    planned = checkpoint.latest_offsets_id()
    again = planned is not None and _is_uncommitted(checkpoint, planned) and _is_decided(summary, planned)
    return again and checkpoint.has_state()


def with_beginnings(checkpoint: SparkCheckpoint, batch: Batch, names: Sequence[SourceName]) -> tuple[OffsetRange, ...]:
    """Return the offsets of `batch`. Spark logs no start for a first batch, so it is taken from where it is noted elsewhere."""
    if all(each.start is not None for each in batch.offsets):
        return batch.offsets
    noted = checkpoint.beginnings(batch.batch_id, names)
    return tuple(each if each.start is not None else replace(each, start=noted.get(each.source)) for each in batch.offsets)


def _is_uncommitted(checkpoint: SparkCheckpoint, planned: BatchId) -> bool:
    committed = checkpoint.latest_commit_id()
    return committed is None or committed < planned


def _is_decided(summary: Summary, planned: BatchId) -> bool:
    return summary.next_batch_id is not None and planned < summary.next_batch_id


def _topics_of(ranges: Iterable[OffsetRange]) -> Iterator[tuple[SourceName, str]]:
    return ((each.source, topic) for each in ranges for offset in (each.start, each.end) for topic in topic_offsets_in(offset))


def _ends(read: Sequence[TopicRead]) -> Mapping[_Place, int]:
    return {(each.source, each.topic, each.topic_id, number): of.end for each in read for number, of in each.partitions.items()}


def _first_unaccepted(watch: Watch, seen: TopicsSeen) -> GapAccepted | None:
    """Return a gap that ends the run or makes it wait, None without one. Nobody can read over a topic that does not exist."""
    stops = (gap for gap in seen.gaps if watch.sources[gap.source].on_gap != "accept" or gap.kind is GapKind.DELETED)
    return next(stops, None)


def _lost(seen: TopicsSeen) -> PenstockError:
    if any(gap.kind is GapKind.DELETED for gap in seen.gaps):
        remedy = "Create it again, with what was in it; then start again."
    else:
        remedy = (
            "Bring them back, or set `on_gap: accept`: the pipeline goes on behind the gap, and the ledger notes what is lost."
        )
    return InputLost(describe_gaps(seen.gaps, now=seen.now), remedy=remedy)


def _moves(seen: TopicsSeen, gaps: Sequence[GapAccepted]) -> Moves:
    """Return where topics go on: recreated ones at their first record, truncated ones at their end or at what is undelivered."""
    read = {(each.source, each.topic): each.partitions for each in seen.topics}
    moves: dict[SourceName, dict[str, dict[int, int]]] = {}
    for gap in gaps:
        of_topic = moves.setdefault(gap.source, {})
        if gap.kind is GapKind.RECREATED:
            of_topic[gap.topic] = {number: held.low for number, held in seen.now[gap.source, gap.topic].partitions.items()}
        else:
            starts = {number: of.start for number, of in read[gap.source, gap.topic].items()}
            of_topic.setdefault(gap.topic, starts)[gap.partition] = min(gap.first, starts[gap.partition])
    return moves


_FIRST = BatchId(0)
_IN_WORDS = {True: "Penstock's own reader", False: "Spark's connector"}
_SETTING = {True: "python", False: "spark"}


def readers(frames: "Mapping[SourceName, DataFrame]", settings: DeliverySettings) -> Mapping[SourceName, bool]:
    """Return for each source that is read from Kafka whether Penstock's own reader reads it."""
    return {name: _is_ours(frames[name]) for name, _ in kafka_sources(settings) if name in frames}


def _is_ours(frame: "DataFrame") -> bool:
    return any(FORMAT in node.name + node.detail for node in plan_of(frame).walk() if not node.children)


def require_first_batch_goes_on(
    checkpoint: SparkCheckpoint, names: Sequence[SourceName], found: Mapping[SourceName, bool]
) -> None:
    """Raise Refused if the first batch is planned, not committed, and by the other reader, which alone knows where it begins."""
    if checkpoint.latest_offsets_id() != _FIRST or checkpoint.latest_commit_id() is not None:
        return
    entry = checkpoint.offsets(_FIRST)
    if entry is None:
        return
    for name, keys in checkpoint.keys(_FIRST, names).items():
        offset = next((entry.offsets[key] for key in keys if key in entry.offsets), None)
        planned_by_us = beginning_in(offset) is not None
        if name in found and offset is not None and found[name] != planned_by_us:
            raise Refused(
                f"The first batch of source {name!r} was planned by {_IN_WORDS[planned_by_us]} and is not delivered yet; where "
                f"it begins {_IN_WORDS[found[name]]} does not know.",
                remedy=f"Let it be delivered with `reader: {_SETTING[planned_by_us]}`; from then on either reader goes on.",
            )


def reader_findings(found: Mapping[SourceName, bool]) -> Iterator[Finding]:
    """Yield for `penstock check` which reader each source has."""
    for name, is_ours in found.items():
        yield Finding(subject=f"reader of {name}", ok=True, message=_IN_WORDS[is_ours])


class Mirrors:
    """The mirrors of one run. Their failures become warnings, and hold no batch back."""

    def __init__(self, sources: Mapping[SourceName, Source]) -> None:
        self._asked = {name: source for name, source in sources.items() if source.mirror_offsets_to is not None}
        self._mirrors: dict[SourceName, Mirror] = {}

    def show(self, reads: Sequence[TopicRead]) -> tuple[str, ...]:
        """Commit where every partition goes on now. Return warnings."""
        warnings = [
            self._of(name, source).show([read for read in reads if read.source == name]) for name, source in self._asked.items()
        ]
        return tuple(warning for warning in warnings if warning is not None)

    def close(self) -> None:
        for mirror in self._mirrors.values():
            mirror.close()
        self._mirrors.clear()

    def _of(self, name: SourceName, source: Source) -> "Mirror":
        from penstock.source.kafka.mirror import Mirror

        if name not in self._mirrors:
            self._mirrors[name] = Mirror(source.mirror_offsets_to or "", client_options(name, source))
        return self._mirrors[name]
