"""Input files that no batch has planned yet, counted without Spark: those of local and mounted directories."""

import glob
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path
from urllib.parse import unquote, urlsplit

from penstock.checkpoint.source_log import logged_files
from penstock.checkpoint.spark_checkpoint import SparkCheckpoint
from penstock.core.model import SourceName
from penstock.observe.status import WaitingFiles
from penstock.spec.source import FILE_FORMATS, Source
from penstock.support.secret import scrub

_HIDDEN = (".", "_")
_ONLY_IN_HADOOP = "{}\\"
"""What a path of Hadoop can have, and Python's patterns cannot."""

_SAMPLED_FILES, _SAMPLED_BYTES = 3, 16 * 1024 * 1024
_IGNORED_AFTER_MS = 7 * 86_400_000
"""Spark ignores files that are so much older than the newest one it has read, unless `maxFileAge` says otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileInput:
    """What waits in each file source, and for each one whose files are not counted from here, why."""

    waiting: tuple[WaitingFiles, ...] = ()
    unknown: tuple[str, ...] = ()


def waiting_files(sources: Mapping[str, Source], checkpoint: SparkCheckpoint) -> FileInput:
    """Count the files that wait. Costs a listing of each directory, and reading Spark's log of the files that it has planned."""
    named = {SourceName(name): source for name, source in sources.items() if source.path and source.format in FILE_FORMATS}
    if not named:
        return FileInput()
    logged = list(logged_files(checkpoint.files))
    planned = {local for file in logged if (local := _local(file.path)) is not None}
    newest_ms = max((file.modified_ms for file in logged), default=0)
    waiting, unknown = list[WaitingFiles](), list[str]()
    for name, source in named.items():
        place = _local(source.path or "")
        if place is None or set(place) & set(_ONLY_IN_HADOOP):
            unknown.append(scrub(f"{name}: files of {source.path} are not counted from here"))
            continue
        if not glob.has_magic(place) and not Path(place).exists():
            unknown.append(f"{name}: {place} does not exist")
            continue
        ages = {option.lower() for option in source.options}
        after_ms = 0 if "maxfileage" in ages else newest_ms - _IGNORED_AFTER_MS
        waiting.append(_counted(name, source, place, planned, after_ms=after_ms))
    return FileInput(waiting=tuple(waiting), unknown=tuple(unknown))


def sample_of(source: Source) -> tuple[str, ...]:
    """Return a few files that the source reads or has read, none of them large; none where they are not listed from here."""
    place = _local(source.path or "")
    if place is None or glob.has_magic(place) or set(place) & set(_ONLY_IN_HADOOP):
        return ()
    pattern, recursive = _listing(source)
    named = (path for path in _listed(place, recursive=recursive) if fnmatchcase(path.name, pattern))
    return tuple(str(path) for path in islice(named, _SAMPLED_FILES) if _is_small(path))


def _is_small(path: Path) -> bool:
    try:
        return path.stat().st_size <= _SAMPLED_BYTES
    except OSError:  # it was taken away meanwhile
        return False


def _listing(source: Source) -> tuple[str, bool]:
    """Return the pattern of the names of the files that Spark lists, and whether it does so in every directory below."""
    options = {key.lower(): value for key, value in source.options.items()}
    return options.get("pathglobfilter", "*"), options.get("recursivefilelookup") == "true"


def _counted(name: SourceName, source: Source, place: str, planned: set[str], *, after_ms: int) -> WaitingFiles:
    pattern, recursive = _listing(source)
    files, size_bytes, oldest_ms = 0, 0, None
    for path in _listed(place, recursive=recursive):
        if str(path) in planned or not fnmatchcase(path.name, pattern):
            continue
        try:
            found = path.stat()
        except OSError:  # it was taken away meanwhile
            continue
        modified_ms = found.st_mtime_ns // 1_000_000
        if modified_ms >= after_ms:
            files, size_bytes = files + 1, size_bytes + found.st_size
            oldest_ms = modified_ms if oldest_ms is None else min(oldest_ms, modified_ms)
    return WaitingFiles(source=name, files=files, size_bytes=size_bytes, oldest_ms=oldest_ms)


def _listed(place: str, *, recursive: bool) -> Iterator[Path]:
    """Yield the files that Spark would list: not hidden ones, and below directories only those that are partitions."""
    roots = glob.glob(place) if glob.has_magic(place) else [place]  # noqa: PTH207 - the pattern is absolute
    for root in map(Path, roots):
        if root.is_file():
            yield root
            continue
        for directory, below, names in os.walk(root):
            below[:] = [name for name in below if not name.startswith(_HIDDEN) and (recursive or "=" in name)]
            yield from (Path(directory, name) for name in names if not name.startswith(_HIDDEN))


def _local(url: str) -> str | None:
    """Return the path of a local file, None for another URL. Spark logs URLs percent-encoded; a setting may be a plain path."""
    parts = urlsplit(url)
    if parts.scheme == "file":
        return unquote(parts.path)
    return url if not parts.scheme else None
