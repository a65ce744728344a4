"""Reads the whole offset log, commit log and `metadata`, and collects their anomalies."""

import itertools
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TypeVar

from penstock.blob.url import is_blob
from penstock.checkpoint.entries import (
    ENTRY_ID,
    RESTORE,
    Anomaly,
    CommitEntry,
    OffsetsEntry,
    Severity,
    Unreadable,
    entry_ids,
    parse_commit,
    parse_offsets,
    parse_query_id,
    restore_or_plan_anew,
    restore_or_run_again,
)
from penstock.checkpoint.files import Files
from penstock.checkpoint.hadoop_checksum import checksum_name, matches
from penstock.core.model import BatchId

_READ_AT_ONCE = 16
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Logs:
    """Content of the two logs and `metadata`. Unreadable entries are among the anomalies and missing from the mappings."""

    query_id: str | None
    planned: frozenset[BatchId]
    committed: frozenset[BatchId]
    offsets: Mapping[BatchId, OffsetsEntry]
    commits: Mapping[BatchId, CommitEntry]
    anomalies: tuple[Anomaly, ...]


def read_logs(files: Files) -> Logs:
    """Read both logs completely. Costs a small file per retained batch and log (Spark retains 100 batches by default)."""
    reading = _Reading(files)
    planned, committed = frozenset(entry_ids(files.names("offsets"))), frozenset(entry_ids(files.names("commits")))
    newest, newest_commit = max(planned, default=BatchId(0)), max(committed, default=BatchId(0))
    query_id = reading.query_id(started=bool(planned or committed))
    offsets = reading.entries("offsets", planned, parse_offsets, needed={newest, newest - 1})
    commits = reading.entries("commits", committed, parse_commit, needed={newest_commit})
    odd = (*odd_sequence(planned, committed), *foreign_files(files, "offsets"), *foreign_files(files, "commits"))
    # Spark writes a newest entry again, so its remedy needs no backup.
    ways_out = {f"offsets/{newest}": restore_or_plan_anew(newest)}
    if newest == newest_commit:
        ways_out[f"commits/{newest}"] = restore_or_run_again(newest)
    found = [
        replace(anomaly, remedy=ways_out.get(anomaly.place, anomaly.remedy)) if anomaly.severity is Severity.STOPS else anomaly
        for anomaly in reading.anomalies
    ]
    return Logs(
        query_id=query_id,
        planned=planned,
        committed=committed,
        offsets=offsets,
        commits=commits,
        anomalies=(*found, *odd),
    )


class _Reading:
    """Reads files and collects their anomalies."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self.anomalies: list[Anomaly] = []

    def query_id(self, *, started: bool) -> str | None:
        if self._files.size_bytes("metadata") is not None:
            return self._parsed("metadata", self._fetched("metadata", self._files.names("")), parse_query_id, needed=True)
        if started:
            self.anomalies.append(_NO_METADATA)
        return None

    def entries(
        self, folder: str, ids: frozenset[BatchId], parse: Callable[[bytes], T], *, needed: set[int]
    ) -> Mapping[BatchId, T]:
        names = frozenset(self._files.names(folder))
        read: dict[BatchId, T] = {}
        at_once = _READ_AT_ONCE if is_blob(self._files.location) else 1  # threads only wait for each other at local files
        with ThreadPoolExecutor(at_once) as pool:
            for fetched in pool.map(lambda some: [(one, self._fetched(f"{folder}/{one}", names)) for one in some], _shares(ids)):
                for batch_id, data in fetched:
                    entry = self._parsed(f"{folder}/{batch_id}", data, parse, needed=batch_id in needed)
                    if entry is not None:
                        read[batch_id] = entry
        return read

    def _fetched(self, name: str, beside: Collection[str]) -> tuple[bytes, bytes | None]:
        """Return the file's content, and its checksum if that is one of the names `beside` it."""
        checksum = checksum_name(name)
        is_there = checksum.rpartition("/")[2] in beside
        return self._files.read(name) or b"", self._files.read(checksum) if is_there else None

    def _parsed(self, name: str, fetched: tuple[bytes, bytes | None], parse: Callable[[bytes], T], *, needed: bool) -> T | None:
        data, checksum = fetched
        entry = None
        try:
            entry = parse(data)
        except Unreadable as error:
            severity = Severity.STOPS if needed else Severity.HARMLESS
            message = f"{name} {error}." + ("" if needed else " Spark does not need it any more.")
            remedy = error.remedy or RESTORE
        else:
            if checksum is None or matches(data, checksum):
                return entry
            severity = Severity.LOSES if needed else Severity.HARMLESS
            message = f"{name} does not match its checksum {checksum_name(name)}: it was changed after Spark wrote it"
            message += ", and Spark takes it as it is." if needed else "."
            remedy = f"{RESTORE} If you changed it on purpose, delete the checksum file."
        remedy = remedy if needed else "Nothing need be done."
        self.anomalies.append(Anomaly(place=name, severity=severity, message=message, remedy=remedy))
        return entry


def _shares(ids: Collection[BatchId]) -> list[list[BatchId]]:
    """Divide ids, in order, into what one thread reads at a time: a single one unless there are thousands."""
    ordered = sorted(ids)
    size = max(1, len(ordered) // (_READ_AT_ONCE * 64))
    return [ordered[start : start + size] for start in range(0, len(ordered), size)]


_NO_METADATA = Anomaly(
    place="metadata",
    severity=Severity.STOPS,
    message="metadata is missing although batches were planned: Spark 4.2 and newer refuse to start, "
    "older ones take a new query id.",
    remedy="Put it back from a copy, or have it written again: `penstock checkpoint repair FILE --yes` takes the query id from "
    "the ledger of the pipeline FILE; with `--query-id ID` it needs none.",
)


_CHECKSUM = re.compile(r"\.(.+)\.crc")
_TEMPORARY = re.compile(r"\..*\.tmp(\.crc)?|.*\.tmp")
_SOME = 5


def odd_sequence(planned: frozenset[BatchId], committed: frozenset[BatchId]) -> Iterator[Anomaly]:
    """Yield an anomaly for each hole in a log, and for each contradiction between the two logs."""
    newest = max(planned, default=None)
    for hole in _holes(planned):
        needed = newest is not None and hole.stop == newest
        yield Anomaly(
            place=f"offsets/{hole.start}",
            severity=Severity.STOPS if needed else Severity.HARMLESS,
            message=f"The offset log has a hole: {_listed('offsets', hole)}.",
            remedy=RESTORE if needed else "Somebody removed entries by hand; Spark does not need these any more.",
        )
    for hole in _holes(committed):
        yield Anomaly(
            place=f"commits/{hole.start}",
            severity=Severity.HARMLESS,
            message=f"The commit log has a hole: {_listed('commits', hole)}; Spark looks at the newest commit only.",
            remedy="Nothing need be done, but somebody removed entries by hand.",
        )
    yield from _against_each_other(newest, max(committed, default=None))


def _against_each_other(newest: BatchId | None, newest_commit: BatchId | None) -> Iterator[Anomaly]:
    if newest_commit is not None and (newest is None or newest_commit > newest):
        entry = "there is no offsets entry at all" if newest is None else f"the newest offsets entry is {newest}"
        first = 0 if newest is None else newest
        yield Anomaly(
            place=f"commits/{newest_commit}",
            severity=Severity.LOSES,
            message=f"commits/{newest_commit} is there, but {entry}: Spark delivers batch {first} once more and then fails.",
            remedy="Restore the missing offsets entries from a copy before you start it.",
        )
    if newest is not None and (-1 if newest_commit is None else newest_commit) < newest - 1:
        first = 0 if newest_commit is None else newest_commit + 1
        yield Anomaly(
            place=f"commits/{first}",
            severity=Severity.LOSES,
            message=f"Spark goes on with batch {newest}, but {_listed('commits', range(first, newest))}: "
            "it passes over these batches in silence, delivered or not.",
            remedy=f"To run them again, remove offsets/{first + 1} and all newer ones first (work on a copy).",
        )


def _holes(ids: Iterable[BatchId]) -> Iterator[range]:
    present = sorted(ids)
    for before, after in itertools.pairwise(present):
        if after > before + 1:
            yield range(before + 1, after)


def _listed(folder: str, ids: range) -> str:
    shown = ", ".join(f"{folder}/{batch_id}" for batch_id in ids[:_SOME])
    more = f" and {len(ids) - _SOME} more" if len(ids) > _SOME else ""
    return f"{shown}{more} {'is' if len(ids) == 1 else 'are'} missing"


def foreign_files(files: Files, folder: str) -> Iterator[Anomaly]:
    """Yield anomalies for the files in a log's directory that are neither entries nor checksums of entries."""
    names = files.names(folder)
    temporary = sorted(name for name in names if _TEMPORARY.fullmatch(name) and not name.endswith(".crc"))
    if temporary:
        shown = ", ".join(temporary[:_SOME]) + (f" and {len(temporary) - _SOME} more" if len(temporary) > _SOME else "")
        yield Anomaly(
            place=folder,
            severity=Severity.HARMLESS,
            message=f"{folder} has temporary files of a writer that died, or of a second driver: {shown}.",
            remedy="Make sure that no driver runs; then they may be deleted.",
        )
    for name in sorted(set(names) - set(temporary)):
        if not (ENTRY_ID.fullmatch(name) or _TEMPORARY.fullmatch(name) or _CHECKSUM.fullmatch(name)):
            yield Anomaly(
                place=f"{folder}/{name}",
                severity=Severity.HARMLESS,
                message=f"{folder}/{name} is no entry of Spark's log.",
                remedy="Spark passes over it; find out who put it there.",
            )
