"""Makes a lost checkpoint again: the files from which Spark goes on with the batch that follows a decided one.

Only for a query without state. The format is version 1 of both logs, which every version of Spark reads for sources without
names of their own, and else version 2 of the offset log. Settings that Spark notes beside offsets only matter to state, so none
but the names are written: it takes the session's.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from penstock.checkpoint.act import Act, Draft, Newest, newest_entries
from penstock.checkpoint.entries import NO_OFFSET, Severity
from penstock.checkpoint.files import Files, places_below
from penstock.checkpoint.migration import encoded_entry
from penstock.checkpoint.source_log import log_offset
from penstock.checkpoint.verification import verify_files
from penstock.core.model import Batch, BatchId, Json, SourceName
from penstock.core.topics import InputFile
from penstock.errors import CheckpointDamaged, Refused

_LOGS = ("offsets", "commits", "sources", "state")
_SEARCHED_MS = 600_000
"""How long a batch may have taken from its planning to its decision, for the beginning of a `rate` source to be found."""

_VERSION = "v1"

FilesByEnd = Mapping[int, Sequence[InputFile]]
"""The files that batches read from one source, by the index in the offset where the batch ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuilt:
    """What a checkpoint is made of again: the content of each file, in the order of writing, without `metadata`, the last one."""

    batch: Batch
    metadata: bytes
    content: Mapping[str, bytes]


def rebuilt(
    batch: Batch,
    *,
    order: Sequence[SourceName],
    decided_at_ms: int,
    files: Mapping[SourceName, FilesByEnd],
    compact_interval: int,
    named: bool = False,
) -> Rebuilt:
    """Return the checkpoint from which Spark goes on after `batch`, the newest decided one.

    `order` names the query's sources in the order of its plan, one for each place where it reads one. `files` are what every
    batch read of each file source. `compact_interval`: how many entries Spark's log of files has between two compacted ones.
    `named`: Spark is to know the sources by name, each of which is in `order` once.
    """
    content = dict[str, bytes]()
    folders = list(dict.fromkeys(order))
    ranges = {each.source: each for each in batch.offsets}
    for folder, name in enumerate(folders):
        place, each = f"sources/{name if named else folder}", ranges[name]
        if name in files:
            last = log_offset(each.end)
            content |= dict(source_log(place, files[name], last=-1 if last is None else last, interval=compact_interval))
        elif each.content is not None:
            content[f"{place}/0"] = _origin(each.content, end=int(each.end or 0), decided_at_ms=decided_at_ms)
    batches = [batch.batch_id] if batch.batch_id == 0 else [batch.batch_id - 1, batch.batch_id]
    for batch_id in batches:
        is_last = batch_id == batch.batch_id
        offsets = {name: ranges[name].end if is_last else ranges[name].start for name in order}
        noted = _noted(planned_at_ms=decided_at_ms - (not is_last))
        entry = encoded_entry(noted, offsets) if named else _entry_by_place(noted, [offsets[name] for name in order])
        content[f"offsets/{batch_id}"] = entry
    content |= {f"commits/{batch_id}": _lines([_json({"nextBatchWatermarkMs": 0})]) for batch_id in batches}
    return Rebuilt(batch=batch, metadata=_json({"id": batch.query_id}).encode(), content=content)


def _noted(*, planned_at_ms: int) -> Mapping[str, Json]:
    return {"batchWatermarkMs": 0, "batchTimestampMs": planned_at_ms, "conf": {}}


def _entry_by_place(noted: Mapping[str, Json], offsets: Iterable[str | None]) -> bytes:
    return _lines([_json(noted), *(NO_OFFSET if offset is None else offset for offset in offsets)])


def source_log(place: str, files: FilesByEnd, *, last: int, interval: int) -> Iterator[tuple[str, bytes]]:
    """Yield the log of a file source up to entry `last`: Spark looks for one compacted entry, and for every entry behind it."""
    compacted = (last + 1) // interval * interval - 1
    if compacted >= 0:
        yield f"{place}/{compacted}.compact", _entry(files, range(compacted + 1))
    for log_id in range(compacted + 1, last + 1):
        yield f"{place}/{log_id}", _entry(files, [log_id])


def _entry(files: FilesByEnd, log_ids: Iterable[int]) -> bytes:
    return _lines(
        _json({"path": file.path, "timestamp": file.modified_ms, "batchId": log_id})
        for log_id in log_ids
        for file in files.get(log_id, ())
    )


def _origin(content: str, *, end: int, decided_at_ms: int) -> bytes:
    """Return where the `rate` source began, which `content` is a fingerprint of: the moment from which its offset counts seconds.

    Searched for from the moment of the decision backwards. Raises Refused.
    """
    for ago_ms in range(_SEARCHED_MS):
        found = _lines([str(decided_at_ms - end * 1000 - ago_ms)])
        if f"origin1:{hashlib.sha256(found).hexdigest()}" == content:
            return found
    raise Refused(
        "A source counts from a beginning that only the lost checkpoint knew.",
        remedy="Put the checkpoint back from a copy, or read what `penstock adopt` says about starting with a new one.",
    )


def _lines(lines: Iterable[str]) -> bytes:
    return "\n".join([_VERSION, *lines]).encode()


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def plan_rebuild(files: Files, made: Rebuilt) -> Act:
    """Return the act that makes the checkpoint `made`. What is there is taken away, and kept as every act keeps it.

    Raises CheckpointDamaged if Spark could not go on from the result.
    """
    batch_id, draft = made.batch.batch_id, Draft(files)
    content = [(place, data, _reason(place)) for place, data in made.content.items()]
    act = act_that_makes(
        draft,
        [*content, ("metadata", made.metadata, "the id of the query")],
        sentence=f"Make the checkpoint again from the ledger: Spark goes on after batch {batch_id}.",
        last=batch_id,
    )
    wrong = [one for one in verify_files(draft).findings if one.severity is not Severity.HARMLESS]
    if wrong:
        raise CheckpointDamaged(
            f"The checkpoint {files.location} as the ledger makes it cannot be gone on from: {wrong[0].meaning.rstrip('.')}.",
            remedy="Put it back from a copy, and report this.",
        )
    return act


def act_that_makes(draft: Draft, content: Iterable[tuple[str, bytes, str]], *, sentence: str, last: BatchId) -> Act:
    """Return the act after which a lost checkpoint holds `content` and ends with batch `last`; `draft` is of what is left of it.

    `content`: place, bytes and reason of each file, in the order of writing.
    """
    newest = newest_entries(draft)  # before anything else is read
    for place in list(_places(draft)):
        draft.delete(place, reason="what is left of the lost checkpoint")
    for place, data, reason in content:
        draft.write(place, data, reason=reason)
    return Act(
        verb="rebuild",
        request={},
        location=draft.location,
        sentence=sentence,
        steps=draft.steps(),
        next_batch_id=BatchId(last + 1),
        newest=newest,
        newest_after=Newest(planned=last, committed=last),
    )


def places_in_logs(files: Files) -> Iterator[str]:
    """Yield every file of Spark's logs, of its sources and of its state."""
    for folder in _LOGS:
        yield from places_below(files, folder)


def _places(files: Files) -> Iterator[str]:
    yield from places_in_logs(files)
    yield from (name for name in files.names("") if name == ".metadata.crc")


def _reason(place: str) -> str:
    log = place.partition("/")[0]
    return {
        "sources": "what the query has read of a source",
        "offsets": "where the newest batches end",
        "commits": "that they are over",
    }[log]
