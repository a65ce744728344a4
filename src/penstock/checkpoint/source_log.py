"""Reads the log in which a Spark file source lists its input files: `sources/<source>/N` and `N.compact`.

The source's offset in the query's own log is only an index into this one. Entry N lists the files found for it; every tenth (by
default) is `N.compact` and repeats all entries before it, after which the older files may be removed.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping

from penstock.checkpoint.entries import ENTRY_ID, RESTORE, Anomaly, Severity
from penstock.checkpoint.files import Files
from penstock.core.kafka_offset import without_notes
from penstock.core.kinesis_offset import is_kinesis_offset
from penstock.core.model import Json
from penstock.core.topics import InputFile
from penstock.errors import CheckpointDamaged

_COMPACT = re.compile(rf"({ENTRY_ID.pattern})\.compact")
_PART_BYTES = 1 << 16
_FILES = "files1:"


def log_offset(offset: str | None) -> int | None:
    """Return the index in a file source's offset such as `{"logOffset":7}`, None for offsets of other sources."""
    if offset is None or not offset.startswith("{"):
        return None
    value = json.loads(offset)
    index = value.get("logOffset")
    return index if set(value) == {"logOffset"} and isinstance(index, int) else None


def fingerprint(files: tuple[InputFile, ...]) -> str:
    """Return a text that identifies a set of input files by paths and modification times, in any order.

    The log's numbering is excluded, so neither compaction nor the grouping of files into entries changes the result. The
    modification time is included: Spark logs it only once, so a replay has the same time, and a file rewritten in place has not.
    """
    digest = hashlib.sha256()
    for file in sorted(files):
        digest.update(json.dumps([file.path, file.modified_ms]).encode() + b"\n")
    return f"{_FILES}{digest.hexdigest()}"


def is_fingerprint(content: str | None) -> bool:
    """Return whether the `content` of a range is a fingerprint of input files."""
    return content is not None and content.startswith(_FILES)


class SourceLog:
    """Reads the log of one file source. `folder` is relative, such as `sources/0`."""

    def __init__(self, files: Files, folder: str) -> None:
        self._files = files
        self._folder = folder

    def between(self, start: str | None, end: str | None) -> tuple[InputFile, ...] | None:
        """Return the input files between two offsets, in log order; None for offsets of other sources.

        Costs one read of a small file per entry, or of the tail of a compacted one. Raises CheckpointDamaged.
        """
        after, up_to = log_offset(start), log_offset(end)
        if up_to is None:
            return None
        return tuple(file for log_id in range(0 if after is None else after + 1, up_to + 1) for file in self._entry(log_id))

    def _entry(self, log_id: int) -> tuple[InputFile, ...]:
        plain = f"{self._folder}/{log_id}"
        for name in (plain, f"{plain}.compact"):
            if self._files.size_bytes(name) is not None:
                return self._pick(name, log_id)
        return self._pick(f"{self._folder}/{self._compacted_after(log_id)}.compact", log_id)

    def _compacted_after(self, log_id: int) -> int:
        ids = [int(found[1]) for name in self._files.names(self._folder) if (found := _COMPACT.fullmatch(name))]
        later = [compact_id for compact_id in ids if compact_id > log_id]
        if not later:
            raise self._damaged(f"has no entry {log_id}, neither by itself nor compacted")
        return min(later)

    def _pick(self, name: str, log_id: int) -> tuple[InputFile, ...]:
        picked: list[InputFile] = []
        for text in lines_backwards(self._files, name):
            if not text or text.startswith(b"v"):
                continue
            try:
                line = json.loads(text)
                of_id, file = int(line["batchId"]), InputFile(str(line["path"]), int(line["timestamp"]))
            except (ValueError, KeyError, TypeError, RecursionError):
                what = f"has a line that is cut off or no file entry: {text[:80]!r}"
                raise self._damaged(f"holds {name.rpartition('/')[2]}, which {what}") from None
            if of_id < log_id:
                break
            if of_id == log_id:
                picked.append(file)
        return tuple(reversed(picked))

    def _damaged(self, what: str) -> CheckpointDamaged:
        return CheckpointDamaged(
            f"The file source's log {self._files.location}/{self._folder} {what}.",
            remedy="`penstock checkpoint repair` repairs it, or says why it cannot. Otherwise restore the directory from a copy.",
        )


def logged_files(files: Files) -> Iterator[InputFile]:
    """Yield every file that the file sources of a checkpoint have planned, as far as their logs can be read.

    Costs reading the newest compacted entry of each log, which names all files before it, and the few entries after it.
    """
    for folder, size_bytes in files.sizes("sources").items():
        if size_bytes is None:
            yield from (file for _, file in logged_in(files, f"sources/{folder}"))


def logged_in(files: Files, folder: str) -> Iterator[tuple[int, InputFile]]:
    """Yield every file that one file source has planned, with the number of its entry, as `logged_files` does."""
    entries = entries_in(files.names(folder))
    compacted = max((log_id for name, log_id in entries.items() if name.endswith(".compact")), default=-1)
    for name, log_id in entries.items():
        if log_id > compacted or (log_id == compacted and name.endswith(".compact")):
            yield from _files_in(files.read(f"{folder}/{name}") or b"")


def _files_in(entry: bytes) -> Iterator[tuple[int, InputFile]]:
    for text in entry.split(b"\n"):
        try:
            line = json.loads(text)
            yield int(line["batchId"]), InputFile(str(line["path"]), int(line["timestamp"]))
        except (ValueError, KeyError, TypeError, RecursionError):  # the version, or an entry of another kind of source
            continue


def lines_backwards(files: Files, name: str, *, part_bytes: int = _PART_BYTES) -> Iterator[bytes]:
    """Yield the lines of a file from last to first, reading only as many bytes as the caller consumes."""
    end = files.size_bytes(name) or 0
    if end == 0:
        return
    rest = b""
    while end > 0:
        start = max(0, end - part_bytes)
        part = (files.read(name, start=start, size_bytes=end - start) or b"") + rest
        rest, *lines = part.split(b"\n")
        yield from reversed(lines)
        end = start
    yield rest


def kind_of(offset: str | None) -> str:
    """Return `files`, `kafka`, `kinesis`, `rate-micro-batch`, `count` (rate, socket: a number), `other`, or `none` for None."""
    if offset is None:
        return "none"
    try:
        value: Json = json.loads(offset)
    except ValueError:
        return "other"
    if isinstance(value, int):
        return "count"
    if log_offset(offset) is not None:
        return "files"
    return _kind_of_numbers(offset, value)


def _kind_of_numbers(offset: str, value: Json) -> str:
    if isinstance(value, dict) and set(value) == {"offset", "timestamp"}:
        return "rate-micro-batch"
    if is_kinesis_offset(value):
        return "kinesis"
    topics: Json = json.loads(without_notes(offset) or "{}")
    is_kafka = isinstance(topics, dict) and all(
        isinstance(parts, dict) and parts and all(part.isdecimal() for part in parts) for parts in topics.values()
    )
    return "kafka" if is_kafka and topics else "other"


_ENTRY = re.compile(rf"({ENTRY_ID.pattern})(\.compact)?")


def entries_in(names: Iterable[str]) -> Mapping[str, int]:
    """Return the entries among the names of files in a source's log, compacted ones included, with their numbers."""
    return {name: int(match[1]) for name in names if (match := _ENTRY.fullmatch(name)) is not None}


def uncompacted_entries(files: Files) -> int:
    """Return how many entries the longest log of a file source has that was never compacted. Costs a listing for each."""
    found = [0]
    for folder, size_bytes in files.sizes("sources").items():
        entries = {} if size_bytes is not None else entries_in(files.names(f"sources/{folder}"))
        if entries and not any(name.endswith(".compact") for name in entries):
            found.append(max(entries.values()) + 1)
    return max(found)


def torn_sources(files: Files, planned: Mapping[str, str | None]) -> Iterator[Anomaly]:
    """Yield one anomaly for each empty, truncated or missing entry from the newest compacted one on.

    The compacted entry itself is only checked for being empty. `planned` are the offsets of the newest planned batch, by source;
    entries after them belong to no batch. Costs one listing per source, and one read for each of the few entries that are not
    compacted.
    """
    for folder, size_bytes in files.sizes("sources").items():
        if size_bytes is None:
            yield from _torn_in(files, folder, planned.get(folder))


def _torn_in(files: Files, folder: str, planned: str | None) -> Iterator[Anomaly]:
    found = {name: match for name in files.names(f"sources/{folder}") if (match := _ENTRY.fullmatch(name))}
    compacted = max((int(match[1]) for match in found.values() if match[2]), default=-1)
    last = log_offset(planned)
    if last is not None:
        yield from _holes_in(f"sources/{folder}", entries_in(found), compacted)
    for name, match in found.items():
        log_id = int(match[1])
        is_compacted = match[2] is not None
        if log_id < compacted or (log_id == compacted and not is_compacted):
            continue
        place = f"sources/{folder}/{name}"
        if not files.size_bytes(place):
            how = "is empty"
        elif not is_compacted and not all(map(_is_whole, (files.read(place) or b"").split(b"\n"))):
            how = "is cut off"
        else:
            continue
        remedy = f"No batch reads it yet: remove it and sources/{folder}/.{name}.crc, and Spark finds its input again."
        is_unplanned = not is_compacted and last is not None and log_id > last
        yield Anomaly(place=place, severity=Severity.STOPS, message=f"{place} {how}.", remedy=remedy if is_unplanned else RESTORE)


def _holes_in(folder: str, entries: Mapping[str, int], compacted: int) -> Iterator[Anomaly]:
    for log_id in range(max(compacted, 0), max(entries.values(), default=-1)):
        place = f"{folder}/{log_id}.compact" if log_id == compacted else f"{folder}/{log_id}"
        if place.rpartition("/")[2] not in entries:
            yield Anomaly(place=place, severity=Severity.STOPS, message=f"{place} {NO_ENTRY}", remedy=RESTORE)


NO_ENTRY = "is missing, and no compacted entry repeats it: Spark does not know its input files."


def lost_source_logs(files: Files, planned: Mapping[str, str | None]) -> Iterator[Anomaly]:
    """Yield one anomaly for each file source whose log is gone, or ends before the newest planned batch, by its `planned` offset.

    Costs a listing per file source.
    """
    for key, last in ((key, log_offset(offset)) for key, offset in planned.items()):
        if last is None:
            continue
        newest = max(entries_in(files.names(f"sources/{key}")).values(), default=None)
        if newest is None and not any(files.names(f"sources/{folder}") for folder in log_folders(key)):
            message = f"sources/{key} is missing or empty, where the input files of every batch are listed."
            yield Anomaly(place=f"sources/{key}", severity=Severity.STOPS, message=message, remedy=RESTORE)
        elif newest is not None and newest < last:
            message = f"sources/{key}/{last} is missing, and the newest planned batch ends with it."
            yield Anomaly(place=f"sources/{key}/{last}", severity=Severity.STOPS, message=message, remedy=RESTORE)


def log_folders(key: str) -> Iterable[str]:
    """Return where a file source's log can be: a relation used twice logs files under its first use, offsets under the last."""
    return map(str, range(int(key) + 1)) if key.isdecimal() else (key,)


def _is_whole(line: bytes) -> bool:
    if not line.startswith(b"{"):
        return True
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True
