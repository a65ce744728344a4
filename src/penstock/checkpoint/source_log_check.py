"""Checks of the logs of sources what the next start reads: the newest compacted entry, and every entry after it."""

import json
from collections.abc import Iterator, Mapping

from penstock.checkpoint.entries import RESTORE, Anomaly, Severity, Unreadable
from penstock.checkpoint.files import Files
from penstock.checkpoint.hadoop_checksum import checksum_name, matches
from penstock.checkpoint.log_reading import Logs
from penstock.checkpoint.source_log import NO_ENTRY, entries_in, kind_of, log_offset


def source_anomalies(files: Files, logs: Logs) -> Iterator[Anomaly]:
    """Yield one anomaly for each missing, torn or changed file. Costs a listing per source, and a read per file."""
    newest = logs.offsets.get(max(logs.offsets)) if logs.offsets else None
    planned = {} if newest is None else newest.offsets
    has_file_sources = any(kind_of(offset) == "files" for offset in planned.values())
    for folder, size_bytes in sorted(files.sizes("sources").items()):
        if size_bytes is None:
            names = set(files.names(f"sources/{folder}"))
            if has_file_sources and kind_of(planned.get(folder)) in {"files", "none"}:
                yield from _file_log_anomalies(files, f"sources/{folder}", names)
                yield from _numbering_anomalies(f"sources/{folder}", entries_in(names), log_offset(planned.get(folder)))
            else:
                yield from _origin_anomalies(files, f"sources/{folder}", names)


def _file_log_anomalies(files: Files, folder: str, names: set[str]) -> Iterator[Anomaly]:
    entries = entries_in(names)
    compacted = max((log_id for name, log_id in entries.items() if name.endswith(".compact")), default=-1)
    for log_id in range(max(compacted, 0), max(entries.values(), default=-1) + 1):
        name = f"{log_id}.compact" if log_id == compacted else str(log_id)
        if name not in names:
            message = f"{folder}/{name} {NO_ENTRY}"
            yield Anomaly(place=f"{folder}/{name}", severity=Severity.STOPS, message=message, remedy=RESTORE)
            continue
        data = files.read(f"{folder}/{name}") or b""
        try:
            _require_entries(data, log_id, compacted=log_id == compacted)
        except Unreadable as error:
            message = f"{folder}/{name} {error}."
            yield Anomaly(place=f"{folder}/{name}", severity=Severity.STOPS, message=message, remedy=RESTORE)
        else:
            yield from _checksum_anomaly(files, f"{folder}/{name}", data, names)


def _numbering_anomalies(folder: str, entries: Mapping[str, int], planned: int | None) -> Iterator[Anomaly]:
    newest = max(entries.values(), default=-1)
    if planned is not None and planned > newest:
        message = f"{folder}/{planned} is missing, and the newest planned batch ends with it: Spark reads its input files again."
        yield Anomaly(place=f"{folder}/{planned}", severity=Severity.LOSES, message=message, remedy=RESTORE)
    compacted = sorted((log_id for name, log_id in entries.items() if name.endswith(".compact")), reverse=True)
    if len(compacted) > 1:
        interval = compacted[0] - compacted[1]  # as Spark derives it
        expected = (newest + 1) // interval * interval - 1
        if expected != compacted[0]:
            message = (
                f"{folder} has the compacted entries {compacted[1]} and {compacted[0]}: "
                f"Spark takes every {interval}. entry for compacted and looks for {expected}.compact, which is missing."
            )
            yield Anomaly(place=folder, severity=Severity.STOPS, message=message, remedy=RESTORE)


def _require_entries(data: bytes, log_id: int, *, compacted: bool) -> None:
    version, *lines = data.split(b"\n")
    if version != b"v1":
        raise Unreadable("does not start with v1")
    of_id = -1
    for number, line in enumerate(lines, start=2):
        try:
            value = json.loads(line)
            of_id = int(value["batchId"])
            if not str(value["path"]) or int(value["timestamp"]) < 0:
                raise Unreadable(f"has no file in line {number}")
        except (ValueError, KeyError, TypeError, RecursionError):
            raise Unreadable(f"is cut off in line {number}, or that is no file entry") from None
        if of_id > log_id or (of_id < log_id and not compacted):
            raise Unreadable(f"names a file of entry {of_id} in line {number}, so it is another entry's content")
    if of_id != log_id:
        raise Unreadable(f"ends before the files of entry {log_id}")


def _origin_anomalies(files: Files, folder: str, names: set[str]) -> Iterator[Anomaly]:
    """Yield what is wrong with where a source that logs no files began. Spark writes it once, as entry 0."""
    if "0" in names:
        yield from _checksum_anomaly(files, f"{folder}/0", files.read(f"{folder}/0") or b"", names)
    else:
        message = f"{folder}/0 is missing, which says where the source began: Spark begins anew where the source is now."
        yield Anomaly(place=f"{folder}/0", severity=Severity.LOSES, message=message, remedy=RESTORE)


def _checksum_anomaly(files: Files, place: str, data: bytes, names: set[str]) -> Iterator[Anomaly]:
    checksum = checksum_name(place)
    if checksum.rpartition("/")[2] in names and not matches(data, files.read(checksum) or b""):
        message = f"{place} does not match its checksum {checksum}: it was changed after Spark wrote it."
        yield Anomaly(place=place, severity=Severity.LOSES, message=message, remedy=RESTORE)
