"""Contradictions between the entries of the two logs: an older entry in the place of a newer one, offsets that go back."""

import itertools
import json
from collections.abc import Iterator, Mapping
from uuid import UUID

from penstock.checkpoint.entries import RESTORE, Anomaly, OffsetsEntry, Severity
from penstock.checkpoint.log_reading import Logs
from penstock.checkpoint.source_log import kind_of, log_offset
from penstock.core.kafka_offset import without_notes
from penstock.core.model import BatchId


def contradictions(logs: Logs) -> Iterator[Anomaly]:
    """Yield an anomaly for each entry that cannot follow the one before it. Entries that Spark reads no more are harmless."""
    newest = max(logs.planned, default=BatchId(0))
    for batch_id, what in itertools.chain(_copies(logs), _steps_back(logs)):
        needed = batch_id >= newest - 1
        yield Anomaly(
            place=f"offsets/{batch_id}",
            severity=Severity.LOSES if needed else Severity.HARMLESS,
            message=f"offsets/{batch_id} {what}: it is not the entry that Spark wrote there.",
            remedy=RESTORE if needed else "Spark does not need it any more.",
        )
    yield from _watermarks(logs, newest)
    if logs.query_id is not None and not _is_uuid(logs.query_id):
        message = f"metadata has the query id {logs.query_id!r}, expected a UUID: it is not what Spark wrote."
        remedy = "Put it back from a copy, or write the query id that `penstock history` shows."
        yield Anomaly(place="metadata", severity=Severity.STOPS, message=message, remedy=remedy)


def _copies(logs: Logs) -> Iterator[tuple[BatchId, str]]:
    """Yield entries with the time of an earlier entry: Spark plans no two batches in the same millisecond."""
    first: dict[int, BatchId] = {}
    for batch_id, entry in sorted(logs.offsets.items()):
        if entry.batch_at_ms is not None:
            earlier = first.setdefault(entry.batch_at_ms, batch_id)
            if earlier != batch_id:
                yield batch_id, f"was planned in the same millisecond as offsets/{earlier}"


def _steps_back(logs: Logs) -> Iterator[tuple[BatchId, str]]:
    ordered = ((batch_id, entry, _positions_by_key(entry)) for batch_id, entry in sorted(logs.offsets.items()))
    for (before_id, before, earlier), (batch_id, entry, later) in itertools.pairwise(ordered):
        if (entry.watermark_ms or 0) < (before.watermark_ms or 0):
            yield batch_id, f"has an older watermark than offsets/{before_id}"
        elif (key := _key_that_goes_back(earlier, later)) is not None:
            yield batch_id, f"has an older offset of source {key} than offsets/{before_id}"
        elif not entry.named and before.offsets.keys() > entry.offsets.keys():  # one with a name may be taken out
            yield batch_id, f"has fewer sources than offsets/{before_id}"


_Positions = Mapping[str, Mapping[str, int]]


def _key_that_goes_back(earlier: _Positions, later: _Positions) -> str | None:
    for key, parts in later.items():
        before = earlier.get(key, {})
        if any(part in parts and parts[part] < position for part, position in before.items()) or (before and not parts):
            return key
    return None


def _positions_by_key(entry: OffsetsEntry) -> _Positions:
    return {key: _positions(offset) for key, offset in entry.offsets.items()}


def _positions(offset: str | None) -> Mapping[str, int]:
    """Return the positions that an offset consists of, by part of its source; empty for sources whose offsets have no order."""
    if (log_id := log_offset(offset)) is not None:
        return {"": log_id}
    kind = kind_of(offset)
    if offset is None or kind in {"none", "other"}:
        return {}
    value = json.loads(without_notes(offset) or "{}")
    if kind == "count":
        return {"": value}
    if kind == "rate-micro-batch":
        return {"": value["offset"]}
    return {f"{topic}/{part}": int(at) for topic, parts in value.items() for part, at in parts.items()}


def _watermarks(logs: Logs, newest: BatchId) -> Iterator[Anomaly]:
    """Yield commits that promise another watermark than the next batch has, or an older one than their own batch."""
    any_promises = any(commit.next_watermark_ms is not None for commit in logs.commits.values())
    for batch_id, commit in sorted(logs.commits.items()):
        promised, own, after = commit.next_watermark_ms, logs.offsets.get(batch_id), logs.offsets.get(BatchId(batch_id + 1))
        if promised is None and not any_promises:  # written by something else than Spark
            continue
        goes_back = promised is None or (own is not None and promised < (own.watermark_ms or 0))
        if goes_back or (after is not None and after.watermark_ms is not None and promised != after.watermark_ms):
            needed = batch_id >= newest - 1 and (batch_id == newest or newest not in logs.commits)
            yield Anomaly(
                place=f"commits/{batch_id}",
                severity=Severity.LOSES if needed else Severity.HARMLESS,
                message=f"commits/{batch_id} has the watermark {promised}, which does not fit offsets/{batch_id} and "
                f"offsets/{batch_id + 1}: it is not the entry that Spark wrote there.",
                remedy=RESTORE if needed else "Spark does not need it any more.",
            )


def _is_uuid(text: str) -> bool:
    try:
        return str(UUID(text)) == text.lower()
    except ValueError:
        return False
