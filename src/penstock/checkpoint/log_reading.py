"""Reads the whole offset log, commit log and `metadata`, and collects their anomalies."""

from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TypeVar

from penstock.checkpoint.anomaly import RESTORE, Anomaly, Severity, restore_or_plan_anew, restore_or_run_again
from penstock.checkpoint.checksum import checksum_name, matches
from penstock.checkpoint.entries import (
    ENTRY_ID,
    CommitEntry,
    OffsetsEntry,
    Unreadable,
    parse_commit,
    parse_offsets,
    parse_query_id,
)
from penstock.checkpoint.files import Files
from penstock.checkpoint.log_check import foreign_files, odd_sequence
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
    planned, committed = _ids(files, "offsets"), _ids(files, "commits")
    newest, newest_commit = max(planned, default=BatchId(0)), max(committed, default=BatchId(0))
    query_id = reading.query_id(started=bool(planned or committed))
    offsets = reading.entries("offsets", planned, parse_offsets, needed={newest, newest - 1})
    commits = reading.entries("commits", committed, parse_commit, needed={newest_commit})
    odd = (*odd_sequence(planned, committed), *foreign_files(files, "offsets"), *foreign_files(files, "commits"))
    return Logs(
        query_id=query_id,
        planned=planned,
        committed=committed,
        offsets=offsets,
        commits=commits,
        anomalies=(*(_with_way_out(anomaly, newest, newest_commit) for anomaly in reading.anomalies), *odd),
    )


def _with_way_out(anomaly: Anomaly, newest: BatchId, newest_commit: BatchId) -> Anomaly:
    """Give a newest entry a remedy that needs no backup: Spark writes these entries again."""
    if anomaly.severity is not Severity.STOPS:
        return anomaly
    if anomaly.place == f"offsets/{newest}":
        return replace(anomaly, remedy=restore_or_plan_anew(newest))
    if anomaly.place == f"commits/{newest_commit}" and newest == newest_commit:
        return replace(anomaly, remedy=restore_or_run_again(newest))
    return anomaly


def _ids(files: Files, folder: str) -> frozenset[BatchId]:
    return frozenset(BatchId(int(name)) for name in files.names(folder) if ENTRY_ID.fullmatch(name))


@dataclass(frozen=True, slots=True)
class _Fetched:
    data: bytes
    checksum: bytes | None


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
        names = self._files.names(folder)
        with ThreadPoolExecutor(_READ_AT_ONCE) as pool:
            fetched = pool.map(lambda batch_id: self._fetched(f"{folder}/{batch_id}", names), sorted(ids))
            read = {
                batch_id: self._parsed(f"{folder}/{batch_id}", data, parse, needed=batch_id in needed)
                for batch_id, data in zip(sorted(ids), fetched, strict=True)
            }
        return {batch_id: entry for batch_id, entry in read.items() if entry is not None}

    def _fetched(self, name: str, beside: Collection[str]) -> _Fetched:
        """Read the file, and its checksum if that is one of the names `beside` it."""
        checksum = checksum_name(name)
        is_there = checksum.rpartition("/")[2] in beside
        return _Fetched(self._files.read(name) or b"", self._files.read(checksum) if is_there else None)

    def _parsed(self, name: str, fetched: _Fetched, parse: Callable[[bytes], T], *, needed: bool) -> T | None:
        try:
            entry = parse(fetched.data)
        except Unreadable as error:
            self.anomalies.append(_unreadable(name, error, needed=needed))
            return None
        if fetched.checksum is not None and not matches(fetched.data, fetched.checksum):
            self.anomalies.append(_changed(name, needed=needed))
        return entry


_NO_METADATA = Anomaly(
    place="metadata",
    severity=Severity.STOPS,
    message="metadata is missing although batches were planned: Spark 4.2 and newer refuse to start, "
    "older ones take a new query id.",
    remedy='Put it back from a copy, or write {"id":"…"} with the query id that `penstock history` shows.',
)


def _unreadable(name: str, error: Unreadable, *, needed: bool) -> Anomaly:
    return Anomaly(
        place=name,
        severity=Severity.STOPS if needed else Severity.HARMLESS,
        message=f"{name} {error}." + ("" if needed else " Spark does not need it any more."),
        remedy=RESTORE if needed else "Nothing need be done.",
    )


def _changed(name: str, *, needed: bool) -> Anomaly:
    return Anomaly(
        place=name,
        severity=Severity.LOSES if needed else Severity.HARMLESS,
        message=f"{name} does not match its checksum {checksum_name(name)}: it was changed after Spark wrote it"
        + (", and Spark takes it as it is." if needed else "."),
        remedy=f"{RESTORE} If you changed it on purpose, delete the checksum file." if needed else "Nothing need be done.",
    )
