"""Reads the log in which a Spark file source lists its input files: `sources/<source>/N` and `N.compact`.

The source's offset in the query's own log is only an index into this one. Entry N lists the files found for it; every tenth (by
default) is `N.compact` and repeats all entries before it, after which the older files may be removed.
"""

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

from penstock.checkpoint.entries import ENTRY_ID, Unreadable
from penstock.checkpoint.files import Files
from penstock.errors import CheckpointDamaged

_COMPACT = re.compile(rf"({ENTRY_ID.pattern})\.compact")
_PART_BYTES = 1 << 16


@dataclass(frozen=True, slots=True, order=True)
class InputFile:
    """One input file of Spark: its URL as logged, and its modification time when Spark found it."""

    path: str
    modified_ms: int


@dataclass(frozen=True, slots=True)
class _Line:
    log_id: int
    file: InputFile


def log_offset(offset: str) -> int | None:
    """Return the index in a file source's offset such as `{"logOffset":7}`, None for offsets of other sources."""
    if not offset.startswith("{"):
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
    return f"files1:{digest.hexdigest()}"


class SourceLog:
    """Reads the log of one file source. `folder` is relative, such as `sources/0`."""

    def __init__(self, files: Files, folder: str) -> None:
        self._files = files
        self._folder = folder

    def between(self, *, after: int, up_to: int) -> tuple[InputFile, ...]:
        """Return the input files of log entries `after + 1` to `up_to`, in log order.

        Costs one read of a small file per entry, or of the tail of a compacted one. Raises CheckpointDamaged.
        """
        return tuple(file for log_id in range(after + 1, up_to + 1) for file in self._entry(log_id))

    def _entry(self, log_id: int) -> tuple[InputFile, ...]:
        plain = f"{self._folder}/{log_id}"
        if self._files.size_bytes(plain) is not None:
            return self._pick(plain, log_id)
        compacted = f"{plain}.compact"
        if self._files.size_bytes(compacted) is not None:
            return self._pick(compacted, log_id)
        return self._pick(f"{self._folder}/{self._compacted_after(log_id)}.compact", log_id)

    def _compacted_after(self, log_id: int) -> int:
        ids = [int(found[1]) for name in self._files.names(self._folder) if (found := _COMPACT.fullmatch(name))]
        later = [compact_id for compact_id in ids if compact_id > log_id]
        if not later:
            raise self._damaged(f"has no entry {log_id}, neither by itself nor compacted")
        return min(later)

    def _pick(self, name: str, log_id: int) -> tuple[InputFile, ...]:
        picked: list[InputFile] = []
        for line in self._backwards(name):
            if line.log_id < log_id:
                break
            if line.log_id == log_id:
                picked.append(line.file)
        return tuple(reversed(picked))

    def _backwards(self, name: str) -> Iterator[_Line]:
        for text in lines_backwards(self._files, name):
            if text and not text.startswith(b"v"):
                yield self._parsed(name, text)

    def _parsed(self, name: str, text: bytes) -> _Line:
        try:
            return parse_line(text)
        except Unreadable as error:
            raise self._damaged(f"holds {name.rpartition('/')[2]}, which {error}") from None

    def _damaged(self, what: str) -> CheckpointDamaged:
        return CheckpointDamaged(
            f"The file source's log {self._files.location}/{self._folder} {what}.",
            remedy="Run `penstock checkpoint inspect` on the checkpoint; restore the directory from a copy.",
        )


def parse_line(text: bytes) -> _Line:
    """Parse one line of the log. Raises Unreadable."""
    try:
        value = json.loads(text)
        return _Line(int(value["batchId"]), InputFile(str(value["path"]), int(value["timestamp"])))
    except (ValueError, KeyError, TypeError, RecursionError):
        raise Unreadable(f"has a line that is cut off or no file entry: {text[:80]!r}") from None


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
