"""Explains in sentences what the next start does with a checkpoint, and why, for an operator who must restart a job at night."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone

from penstock.checkpoint.entries import Severity
from penstock.checkpoint.inspection import Inspection, Next, NextStart, SourcePosition
from penstock.core.model import BatchId

_SOME = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What `penstock checkpoint explain` prints.

    `headline`: what the next start does, in one sentence. `why`: how the files show it. `input`: what the first batch reads.
    `notes`: further facts. `problems`: what is wrong, each with its remedy; empty if nothing is.
    """

    headline: str
    why: tuple[str, ...]
    input: tuple[str, ...]
    notes: tuple[str, ...]
    problems: tuple[str, ...]


def explain(inspection: Inspection) -> Explanation:
    """Explain what the next start of the query does, and why. A pure function."""
    return Explanation(
        headline=headline(inspection.outlook),
        why=_why(inspection),
        input=tuple(_input(inspection)),
        notes=tuple(_notes(inspection)),
        problems=tuple(
            f"{anomaly.message} {anomaly.remedy}" for anomaly in inspection.anomalies if anomaly.severity is not Severity.HARMLESS
        ),
    )


def headline(ahead: NextStart) -> str:
    """Return in one sentence what the next start does."""
    headlines: Mapping[Next, str] = {
        Next.FRESH: "Nothing was planned here yet: the next start begins with batch 0 and whatever input is there.",
        Next.NEW: f"The next start goes on with batch {ahead.batch_id}. Nothing is repeated.",
        Next.REPLAY: f"The next start runs batch {ahead.batch_id} AGAIN: same number, same input.",
        Next.SKIP: f"The next start runs batch {ahead.batch_id} again and passes over {_batches(ahead.skipped)} in silence.",
        Next.REPEAT: f"The next start delivers batch {ahead.batch_id} once more, though it is committed, and then fails.",
        Next.FAIL: "Spark will not start on this checkpoint.",
    }
    return headlines[ahead.next]


def _why(inspection: Inspection) -> tuple[str, ...]:
    batch_id = inspection.outlook.batch_id
    before = (batch_id or 0) - 1
    whys: Mapping[Next, tuple[str, ...]] = {
        Next.FRESH: ("There is no entry in offsets/, where Spark writes what a batch is before it runs it.",),
        Next.NEW: (
            f"offsets/{before} says what batch {before} was; commits/{before} says that its sink returned.",
            f"So that batch is over, and batch {batch_id} starts where it ended.",
        ),
        Next.REPLAY: _why_replay(batch_id),
        Next.SKIP: (
            *_why_replay(batch_id),
            "Spark looks only at the newest entry of each log, so the uncommitted batches before it are taken for done.",
        ),
        Next.REPEAT: (
            "The commit log is newer than the offset log: entries of offsets/ were lost or removed.",
            f"Spark runs the newest batch that is still in offsets/, or begins anew, and then finds commits/{batch_id} taken.",
        ),
        Next.FAIL: ("What keeps it from starting is listed under problems.",),
    }
    return whys[inspection.outlook.next]


def _why_replay(batch_id: BatchId | None) -> tuple[str, ...]:
    return (
        f"offsets/{batch_id} was written before the batch ran; commits/{batch_id}, written after the sink returned, is missing.",
        "Spark cannot know how far the sink got, so it hands over the whole batch once more.",
        "A sink that does not recognise the batch writes it twice. Penstock recognises it by query id and offsets.",
        "Rows are computed anew: rand(), uuid() and the order of rows can differ from the first time.",
    )


def _input(inspection: Inspection) -> Iterator[str]:
    if inspection.outlook.next in {Next.FAIL, Next.FRESH}:
        return
    for source in inspection.sources:
        reads = _range(source) if inspection.outlook.is_replay else f"what comes after {_offset(source.end)}."
        yield f"Source {source.key}: {reads}"


def _range(source: SourcePosition) -> str:
    if source.files is not None:
        shown = ", ".join(file.path for file in source.files[:_SOME])
        more = f" and {len(source.files) - _SOME} more" if len(source.files) > _SOME else ""
        count = "1 file" if len(source.files) == 1 else f"{len(source.files)} files"
        return f"{count}: {shown}{more}." if source.files else "no new files."
    if source.start == source.end:
        return "nothing new."
    return f"from {_offset(source.start)} to {_offset(source.end)}."


def _offset(offset: str | None) -> str:
    return "the beginning" if offset is None else offset


def _notes(inspection: Inspection) -> Iterator[str]:
    if inspection.query_id is not None:
        yield f"The checkpoint belongs to query {inspection.query_id}."
    if inspection.outlook.is_replay and inspection.planned_at_ms is not None:
        yield f"In the repeated batch current_timestamp is again {_time(inspection.planned_at_ms)}."
    if inspection.watermark_ms:
        yield f"The watermark of that batch is {_time(inspection.watermark_ms)}: stateful operators drop older rows as late."
    for operator in inspection.operators:
        bound = "" if operator.partitions is None else f", bound to {operator.partitions} partitions"
        yield f"Operator {operator.operator_id} ({operator.name or 'unknown'}) keeps state{bound}."
    if inspection.operators and inspection.outlook.is_replay:
        yield "The batch must be computed to its end even if its rows are delivered already: else its state is not committed."
    harmless = sum(anomaly.severity is Severity.HARMLESS for anomaly in inspection.anomalies)
    if harmless:
        yield f"{harmless} harmless anomal{'ies' if harmless > 1 else 'y'}: `penstock checkpoint inspect` lists them."


def _batches(ids: tuple[BatchId, ...]) -> str:
    if len(ids) == 1:
        return f"batch {ids[0]}"
    return f"batches {ids[0]} to {ids[-1]}" if ids else "no batch"


def _time(unix_ms: int) -> str:
    return datetime.fromtimestamp(unix_ms / 1000, tz=timezone.utc).isoformat(timespec="seconds")
