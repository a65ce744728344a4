"""Input files of a planned batch: their size and modification time now, and whether they are what Spark planned.

Spark lists the files of a batch once and reads them later by name. It silently skips a file that was removed in between, and
reads a changed file as it is now. Both were observed with Spark 4.3, in a repeated batch and between planning and reading.
"""

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from penstock.blob import open_store
from penstock.blob.client import TAG
from penstock.blob.url import is_blob, parse
from penstock.checkpoint.source_log import kind_of
from penstock.core.model import Batch, BatchId, OffsetRange, SourceName
from penstock.core.topics import InputFile
from penstock.errors import Failed, InputChanged, Retryable, Usage
from penstock.support.filesystem_errors import translate_os_errors

_AT_ONCE = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class FileState:
    """Present state of an input file. `size_bytes` is None if the file is gone.

    `modified_ms` counts in steps of `step_ms`: object stores answer in whole seconds, and Spark's connectors log milliseconds
    where a listing has them. `noted` is an object's metadata entry: the logged time, if a person confirmed the object.
    """

    size_bytes: int | None
    modified_ms: int | None = None
    step_ms: int = 1
    noted: str | None = None


class InputListing:
    """Looks up input files: local ones, and those in the same bucket, container or HDFS as `checkpoint`, with its `options`."""

    def __init__(self, checkpoint: str = "", *, options: Mapping[str, Any] | None = None) -> None:
        self._store = parse(checkpoint) if is_blob(checkpoint) else None
        self._options = dict(options or {})

    def at(self, files: Sequence[InputFile]) -> Sequence[FileState | None]:
        """Return the state of each file, None if not visible from here. Costs one stat or request per file. Raises Retryable."""
        if not any(is_blob(file.path) for file in files):
            return [self._one(file) for file in files]
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return list(pool.map(self._one, files))

    def _one(self, file: InputFile) -> FileState | None:
        """Look up one file. Spark logs URLs percent-encoded."""
        parts = urlsplit(file.path)
        if parts.scheme in {"", "file"}:
            path = Path(unquote(parts.path))
            with translate_os_errors(Retryable, f"The input file {path} cannot be looked at", then=", then try again."):
                try:
                    status = path.stat()
                except (FileNotFoundError, NotADirectoryError):
                    return FileState(size_bytes=None)
            return FileState(size_bytes=status.st_size, modified_ms=status.st_mtime_ns // 1_000_000)
        return self._in_store(f"{parts.scheme}://{parts.netloc}{unquote(parts.path)}")

    def _in_store(self, url: str) -> FileState | None:
        if self._store is None or not is_blob(url):
            return None
        try:
            place = parse(url)
            if (place.kind, place.host, place.bucket) != (self._store.kind, self._store.host, self._store.bucket):
                return None
            folder, _, name = str(place).rpartition("/")
            found = open_store(folder, options=self._options).head(name)
        except (Usage, Failed):  # the name is no valid key, or only Spark has the permission to read it
            return None
        if found is None:
            return FileState(size_bytes=None)
        step_ms = 1 if place.kind == "hdfs" else 1000
        return FileState(size_bytes=found.size_bytes, modified_ms=found.modified_ms, step_ms=step_ms, noted=found.tag)


_SOME = 3
_UNDECIDED = "nothing of the batch was decided"
_DELIVERED = "the batch's rows are delivered, but Spark needs its input once more for the query's state"


def require_unchanged(
    batch_id: BatchId,
    inputs: Mapping[SourceName, Sequence[InputFile]],
    *,
    look: InputListing | None = None,
    delivered: bool = False,
) -> None:
    """Raise InputChanged if an input file is gone or has another modification time than Spark planned it with.

    Called before a batch of an earlier run is staged; after any batch is staged and before it is decided, so that what was staged
    is what was planned (I4); and, with `delivered`, after a batch that was delivered before was computed again for its state,
    before Spark commits it. Costs one stat or request per file. Files that are not visible from here are skipped; without `look`
    those are all files outside local and mounted directories.

    Times are compared: Spark logs no size. A file truncated by a copy, a full disk or a second writer has another time. An
    operator who repairs a corrupt file confirms it by giving the file the logged time, or by noting that time on the object,
    since object stores set times themselves.
    """
    for name, files in inputs.items():
        wrong = changes_of(files, look or InputListing())
        if wrong:
            more = f" and {len(wrong) - _SOME} more" if len(wrong) > _SOME else ""
            changes = "; ".join(change for _, change in wrong[:_SOME])
            raise InputChanged(
                f"Input of batch {batch_id} was changed under source {name}: {changes}{more}.",
                remedy=_remedy(wrong[0][0], delivered=delivered),
            )


def changes_of(files: Sequence[InputFile], look: InputListing) -> Sequence[tuple[InputFile, str]]:
    """Return the files that are gone or changed since Spark planned them, each with what happened to it."""
    looks = zip(files, look.at(files), strict=True)
    return [(file, change) for file, seen in looks if (change := _change(file, seen)) is not None]


def _remedy(file: InputFile, *, delivered: bool) -> str:
    """Return how to put `file` back, and how to confirm one whose content is meant."""
    command = _note_command(file)
    if command is not None:
        how, why = ("as they were", _DELIVERED) if delivered else ("as they were, or mended", _UNDECIDED)
        return (
            f"Put the files back {how}, and let nothing write to them. Then note on each the time that Spark logged for it: "
            f"`{command}`. Then start again: {why}."
        )
    if delivered:
        return f"Put the files back as they were, with their modification times, and start again: {_DELIVERED}."
    return (
        f"Put the files back as they were and let nothing write to them, then start again: {_UNDECIDED}. If a change is meant, "
        "as in a file that was mended, or that is gone for good and is to count as empty, give the file the time that is "
        "expected: "
        f"{_time_command(file)}."
    )


def _time_command(file: InputFile) -> str:
    """Return how to give a local file, or one on HDFS, the modification time that Spark logged."""
    if urlsplit(file.path).scheme in {"", "file"}:
        return f"touch -d @{_stamp(file.modified_ms)} {shlex.quote(_shown(file.path))}"
    return f"{file.modified_ms} ms, by the operation SETTIMES of WebHDFS"


def _note_command(file: InputFile) -> str | None:
    """Return the command that notes the logged time on an object; None for files whose time can be set."""
    url = _shown(file.path)
    place = parse(url) if is_blob(url) else None
    if place is None or place.kind == "hdfs":
        return None
    note, name = f"{TAG}={file.modified_ms}", shlex.quote(str(place))
    if place.kind == "s3":
        return f"aws s3 cp {name} {name} --metadata-directive REPLACE --metadata {note}"
    if place.kind == "gs":
        return f"gcloud storage objects update {name} --update-custom-metadata={note}"
    account, _, _ = place.host.partition(".")
    return (
        f"az storage blob metadata update --account-name {account} --container-name {place.bucket} "
        f"--name {shlex.quote(place.prefix)} --metadata {note}"
    )


def _change(file: InputFile, seen: FileState | None) -> str | None:
    if seen is None:
        return None
    if seen.size_bytes is None:
        return f"{_shown(file.path)} is gone"
    if seen.modified_ms is None or seen.noted == str(file.modified_ms):
        return None
    if seen.modified_ms // seen.step_ms == file.modified_ms // seen.step_ms:
        return None
    return f"{_shown(file.path)} was modified at {_stamp(seen.modified_ms)}, expected {_stamp(file.modified_ms)} (Unix time)"


def _stamp(unix_ms: int) -> str:
    return f"{unix_ms // 1000}.{unix_ms % 1000:03}"


def _shown(url: str) -> str:
    """Return the path of a local file, or else the URL, unescaped."""
    parts = urlsplit(url)
    return unquote(parts.path if parts.scheme in {"", "file"} else url)


_LOOKED_AT = 100
"""Most files of a batch whose sizes are looked up if any of them is in a store."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedInput:
    """Amount of input: records of sources that count them, and bytes of files as stored, compressed or not."""

    records: int = 0
    size_bytes: int = 0

    def __add__(self, other: "PlannedInput") -> "PlannedInput":
        return PlannedInput(records=self.records + other.records, size_bytes=self.size_bytes + other.size_bytes)


def planned_input(
    batch: Batch, files: Mapping[SourceName, Sequence[InputFile]], *, look: InputListing | None = None
) -> PlannedInput | None:
    """Return the input of all sources of `batch`, None if any is unknown. `files` are the input files of its file sources.

    Costs one stat or request per file, and none for many files in a store: such a batch is not small.
    """
    total = PlannedInput()
    for offsets in batch.offsets:
        found = _of_files(files[offsets.source], look or InputListing()) if offsets.source in files else _of_records(offsets)
        if found is None:
            return None
        total += found
    return total


def _of_files(files: Sequence[InputFile], look: InputListing) -> PlannedInput | None:
    if len(files) > _LOOKED_AT and any(is_blob(file.path) for file in files):
        return None
    try:
        sizes = [None if seen is None else seen.size_bytes for seen in look.at(files)]
    except Retryable:
        return None
    known = [size for size in sizes if size is not None]
    return PlannedInput(size_bytes=sum(known)) if len(known) == len(sizes) else None


def _of_records(offsets: OffsetRange) -> PlannedInput | None:
    if offsets.end is None or offsets.end == offsets.start:
        return PlannedInput()
    count = _COUNTED.get(kind_of(offsets.end))
    if count is None or offsets.start is None:
        return None
    return PlannedInput(records=count(json.loads(offsets.end)) - count(json.loads(offsets.start)))


_COUNTED: Mapping[str, Callable[[Any], int]] = {
    "rate-micro-batch": lambda offset: int(offset["offset"]),
    "kafka": lambda offset: sum(position for partitions in offset.values() for position in partitions.values()),
}
