"""Compares two checkpoints: what one knows that the other does not, batch by batch."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from penstock.checkpoint.entries import CommitEntry, OffsetsEntry
from penstock.checkpoint.files import Files
from penstock.checkpoint.log_reading import read_logs
from penstock.checkpoint.source_log import logged_files
from penstock.checkpoint.state_chain import partition_stores


@dataclass(frozen=True, slots=True, kw_only=True)
class DifferentEntry:
    """One thing that two checkpoints do not both know. `first` and `second` say what each has, None if it has nothing.

    `place` is relative to the checkpoint: `metadata`, `offsets/N`, `commits/N`, `sources` for an input file, or the store of an
    operator below `state`.
    """

    place: str
    first: str | None
    second: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """What `penstock checkpoint diff` shows."""

    first: str
    second: str
    same: bool
    entries: tuple[DifferentEntry, ...]


def compare(first: Files, second: Files) -> Difference:
    """Compare two checkpoints without their state's content. Costs what reading both logs and listing the state costs.

    An entry that one of them removed after its retention is a difference, too. Raises Retryable, Failed.
    """
    known, other = dict(_facts(first)), dict(_facts(second))
    facts = sorted(known.keys() | other.keys(), key=_in_order)
    entries = tuple(
        DifferentEntry(place=place, first=known.get((place, name)), second=other.get((place, name)))
        for place, name in facts
        if known.get((place, name)) != other.get((place, name))
    )
    return Difference(first=first.location, second=second.location, same=not entries, entries=entries)


_Fact = tuple[str, str]
"""A place, and which fact of that place it is, where there are several."""


def _in_order(fact: _Fact) -> tuple[str, int, str, str]:
    place, name = fact
    folder, _, entry = place.rpartition("/")
    return (folder, int(entry) if entry.isdecimal() else -1, entry, name.rjust(20) if name.isdecimal() else name)


def _facts(files: Files) -> Iterator[tuple[_Fact, str]]:
    logs = read_logs(files)
    if logs.query_id is not None:
        yield ("metadata", ""), f"query {logs.query_id}"
    for batch_id in logs.planned:
        yield (f"offsets/{batch_id}", ""), _planned(logs.offsets.get(batch_id))
    for batch_id in logs.committed:
        yield (f"commits/{batch_id}", ""), _committed(logs.commits.get(batch_id))
    for file in logged_files(files):
        yield ("sources", file.path), f"{file.path} of {file.modified_ms} ms"
    for place, versions in _versions(files).items():
        for version, ids in versions.items():
            names = ", ".join(sorted(filter(None, ids)))
            yield (place, str(version)), f"version {version} of {len(ids)} files{f' ({names})' if names else ''}"


def _planned(entry: OffsetsEntry | None) -> str:
    if entry is None:
        return "unreadable"
    offsets = "; ".join(f"{key}: {offset or '-'}" for key, offset in sorted(entry.offsets.items()))
    return f"planned at {entry.batch_at_ms} ms, watermark {entry.watermark_ms} ms, up to {offsets}"


def _committed(entry: CommitEntry | None) -> str:
    return "unreadable" if entry is None else f"committed, next watermark {entry.next_watermark_ms} ms"


def _versions(files: Files) -> Mapping[str, Mapping[int, list[str | None]]]:
    """Return the versions on disk of each partition's store, by its folder, with the unique ids of their files."""
    found: defaultdict[str, defaultdict[int, list[str | None]]] = defaultdict(lambda: defaultdict(list))
    for store in partition_stores(files):
        for file in store.versions:
            found[file.folder][file.version].append(file.unique_id)
    return found
