"""Copies a checkpoint from any store to any other, also while its query runs: a cut at the newest committed batch.

The first thing written is a `metadata` that no Spark can read, and the last is the real one. So a copy that was interrupted, at
any write, does not start as a query, and the same command finishes it.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Set
from dataclasses import dataclass
from typing import TypeAlias

from penstock.checkpoint.entries import (
    CommitEntry,
    OffsetsEntry,
    Unreadable,
    entry_ids,
    parse_commit,
    parse_offsets,
    unfinished_act,
)
from penstock.checkpoint.files import Files, hidden_name, places_below
from penstock.checkpoint.hadoop_checksum import checksum_name
from penstock.checkpoint.source_log import entries_in, log_offset
from penstock.checkpoint.state import operator_ids
from penstock.checkpoint.state_chain import chains, partition_stores
from penstock.checkpoint.state_check import descriptions
from penstock.checkpoint.verification import verify_files
from penstock.core.model import BatchId
from penstock.errors import CheckpointDamaged, Refused, Retryable

UNFINISHED = b"This copy of a checkpoint is not finished. Run `penstock checkpoint copy` again.\n"
_ATTEMPTS = 5
_MOVED = re.compile(r"moved-[^/]+")
"""Where `penstock.checkpoint.repair` keeps entries that it replaced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """What `penstock checkpoint copy` wrote: everything that a start after batch `batch_id` needs, and nothing later."""

    source: str
    target: str
    batch_id: BatchId
    files: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table of RocksDB in the target. `verified`: it is certain that it is as Spark wrote it."""

    size_bytes: int
    verified: bool


LinkTable: TypeAlias = Callable[[str], Table | None]
"""Has a table of RocksDB of the source appear at the same place of the target without copying it. None if that cannot be."""


class _Vanished(Exception):
    pass


def copy_checkpoint(source: Files, target: Files, *, link_table: LinkTable = lambda _: None) -> Copy:
    """Copy `source` to the empty place `target`, or finish a copy that was interrupted there; verify it before it can start.

    Raises Refused if `target` holds anything else or nothing is committed yet, CheckpointDamaged, Retryable, Failed.
    """
    _require_empty(target)
    target.write("metadata", UNFINISHED)
    tables = dict[str, Table]()
    for _ in range(_ATTEMPTS):
        try:
            return _attempt(source, target, tables, link_table)
        except _Vanished:
            continue
    raise Retryable(
        f"The query removed files of the checkpoint {source.location} faster than they could be copied.",
        remedy="Run the command again, or stop the query first.",
    )


def is_empty(target: Files) -> bool:
    """Return whether nothing is there, or only what a kill left of the first write of a copy."""
    return set(target.names("")) <= {hidden_name("metadata")}


def _require_empty(target: Files) -> None:
    if not is_empty(target) and target.read("metadata") != UNFINISHED:
        raise Refused(
            f"{target.location} holds something already, and a checkpoint is copied only to an empty place.",
            remedy="Name another place.",
        )


def _attempt(source: Files, target: Files, tables: dict[str, Table], link_table: LinkTable) -> Copy:
    """Copy what the newest committed batch needs. `tables`: those of RocksDB that are copied or linked, by their places.

    They are most of the state, and what is in one never changes, so an attempt only copies those that came since the last one:
    else it would have to be faster than the query removes files. Entries of the logs are read first, since each batch removes
    some, and written last.
    """
    metadata = source.read("metadata")
    if metadata is None:
        raise _damaged(source, "metadata is missing")
    if (act := unfinished_act(metadata)) is not None:
        raise _damaged(source, f"the act {act} is not finished")
    batch_id = _newest_committed(source)
    places = list(dict.fromkeys(_places(source, batch_id)))
    logs = {place: _read(source, place) for place in places if place.startswith(("offsets/", "commits/"))}
    _remove_others(target, {*places, "metadata"})
    for gone in tables.keys() - set(places):
        del tables[gone]
    size_bytes = len(metadata)
    for place in places:
        if place.endswith(".sst"):
            if place not in tables:
                tables[place] = link_table(place) or Table(size_bytes=_copied(source, target, place), verified=False)
            size_bytes += tables[place].size_bytes
        else:
            size_bytes += _copied(source, target, place, logs.get(place))
    _require_verified(source, target, but={place for place, table in tables.items() if table.verified})
    target.write("metadata", metadata)  # from here on Spark can start there
    return Copy(source=source.location, target=target.location, batch_id=batch_id, files=len(places) + 1, size_bytes=size_bytes)


def _copied(source: Files, target: Files, place: str, data: bytes | None = None) -> int:
    """Copy one file, of which `data` may have been read already. Return its size."""
    content = _read(source, place) if data is None else data
    target.write(place, content)
    return len(content)


def _newest_committed(source: Files) -> BatchId:
    planned = set(entry_ids(source.names("offsets")))
    committed = [batch_id for batch_id in entry_ids(source.names("commits")) if batch_id in planned]
    if not committed:
        raise Refused(
            f"The checkpoint {source.location} has no committed batch, so there is nothing to go on from.",
            remedy="Let the query finish a batch first, or start the other one without a checkpoint.",
        )
    return max(committed)


def _places(source: Files, batch_id: BatchId) -> Iterator[str]:
    """Yield what is copied, in the order in which it is written: state, sources, offsets, commits."""
    try:
        offsets = parse_offsets(_read(source, f"offsets/{batch_id}"))
        commit = parse_commit(_read(source, f"commits/{batch_id}"))
    except Unreadable as error:
        raise _damaged(source, f"an entry of batch {batch_id} {error}") from None
    yield from _state_places(source, batch_id, commit)
    yield from _source_places(source, offsets)
    for folder in source.names(""):
        if _MOVED.fullmatch(folder):
            yield from (f"{folder}/{name}" for name in source.names(folder))
    for log in ("offsets", "commits"):
        yield from (f"{log}/{one}" for one in sorted(entry_ids(source.names(log))) if one <= batch_id)


def _state_places(source: Files, batch_id: BatchId, commit: CommitEntry) -> Iterator[str]:
    stores = list(partition_stores(source))
    for _, places, missing in chains(source, stores, version=batch_id + 1, commit=commit):
        if missing is not None and batch_id != _newest_committed(source):
            raise _Vanished
        if missing is not None:
            raise _damaged(source, f"{missing.place} {missing}")
        yield from _with_checksums(source, places)
    for operator_id in operator_ids(source):
        yield from descriptions(source, operator_id)
        for partition in source.names(f"state/{operator_id}"):
            yield from (f"state/{operator_id}/{partition}/_metadata/{name}" for name in _plain(source, operator_id, partition))


def _with_checksums(source: Files, places: Iterable[str]) -> Iterator[str]:
    """Yield files of the state, each with its checksums: Spark's own, and that of Hadoop's file system.

    Without the latter a file looks like one that somebody put there, as soon as Spark has written others beside it.
    """
    beside = dict[str, frozenset[str]]()  # tables of RocksDB are in a folder of their own
    for place in places:
        yield place
        folder = place.rpartition("/")[0]
        if folder not in beside:
            beside[folder] = frozenset(source.names(folder))
        for checksum in (f"{place}.crc", checksum_name(place)):
            if checksum.rpartition("/")[2] in beside[folder]:
                yield checksum


def _plain(source: Files, operator_id: int, partition: str) -> list[str]:
    if not partition.isdecimal():
        return []
    sizes = source.sizes(f"state/{operator_id}/{partition}/_metadata")
    return [name for name, size_bytes in sizes.items() if size_bytes is not None and not name.startswith(".")]


def _source_places(source: Files, offsets: OffsetsEntry) -> Iterator[str]:
    """Yield the entries of sources up to the batch. Input that was listed for a later batch, Spark finds again."""
    ends = {key: log_offset(offset) for key, offset in offsets.offsets.items()}
    newest = max((end for end in ends.values() if end is not None), default=None)
    for folder, size_bytes in source.sizes("sources").items():
        if size_bytes is not None:
            continue
        entries = entries_in(source.names(f"sources/{folder}"))
        is_file_log = newest is not None and ends.get(folder, newest) is not None
        last = (ends.get(folder) or newest) if is_file_log else None
        yield from (f"sources/{folder}/{name}" for name, log_id in entries.items() if last is None or log_id <= last)


def _read(source: Files, place: str) -> bytes:
    data = source.read(place)
    if data is None:
        raise _Vanished
    return data


def _remove_others(target: Files, places: set[str]) -> None:
    """Remove what an interrupted copy, or an attempt at an earlier batch, wrote and this one does not."""
    for place in list(places_below(target, "")):
        if place not in places:
            target.delete(place)


def _require_verified(source: Files, target: Files, *, but: Set[str]) -> None:
    wrong = [
        finding
        for finding in verify_files(target, but=but).findings
        if finding.file != "metadata" and finding.severity.value != "harmless"
    ]
    if wrong:
        raise _damaged(source, f"what was copied cannot be gone on from: {wrong[0].meaning.rstrip('.')}")


def _damaged(source: Files, what: str) -> CheckpointDamaged:
    return CheckpointDamaged(
        f"In the checkpoint {source.location}, {what}.", remedy="Run `penstock checkpoint verify` on it: it names every remedy."
    )
