"""Reads the log in which Spark's file sink names the files of its batches: `_spark_metadata/N` and `N.compact` in its directory.

Entry N is written once batch N is whole, before Spark commits it. Every tenth (by default) is `N.compact` and repeats all entries
before it, after which the older ones may be removed.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import unquote

from penstock.checkpoint.files import Files
from penstock.checkpoint.source_log import entries_in
from penstock.core.model import BatchId
from penstock.errors import CheckpointDamaged

_VERSION = b"v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSinkLog:
    """What the log names: the size of each file, by its absolute path, up to batch `newest`."""

    newest: BatchId
    sizes: Mapping[str, int]


def read_file_sink_log(files: Files) -> FileSinkLog | None:
    """Return what the log in `files` names, None if it has no entry. Costs reading the newest compacted entry and those after it.

    Raises CheckpointDamaged if an entry is torn, or missing after the newest compacted one.
    """
    entries = entries_in(files.names(""))
    if not entries:
        return None
    compacted = max((number for name, number in entries.items() if name.endswith(".compact")), default=None)
    newest = max(entries.values())
    sizes = dict[str, int]()
    for number in range(0 if compacted is None else compacted, newest + 1):
        name = f"{number}.compact" if number == compacted else str(number)
        if name not in entries:
            raise _damaged(files, f"has no entry {number}, neither by itself nor compacted")
        _apply(files, name, sizes)
    return FileSinkLog(newest=BatchId(newest), sizes=sizes)


def _apply(files: Files, name: str, sizes: dict[str, int]) -> None:
    """Add what an entry adds to `sizes`, and take out what it deletes."""
    version, *lines = (files.read(name) or b"").split(b"\n")
    if version != _VERSION:
        raise _damaged(files, f"holds {name}, which begins with {version[:20]!r}, expected {_VERSION!r}")
    for line in filter(None, lines):
        try:
            found = json.loads(line)
            path, size_bytes, action = _path_in(str(found["path"])), int(found["size"]), found.get("action", "add")
        except (ValueError, KeyError, TypeError, RecursionError):
            raise _damaged(files, f"holds {name}, which has a line that is cut off or no file entry: {line[:80]!r}") from None
        if action == "delete":
            sizes.pop(path, None)
        else:
            sizes[path] = size_bytes


def _path_in(uri: str) -> str:
    """Return the path of a `file:` URI as Hadoop writes it, with its escapes undone. A URI of a store stays as it is."""
    scheme, colon, rest = uri.partition(":")
    if not colon or scheme != "file":
        return uri
    return unquote("/" + rest.lstrip("/"), errors="surrogateescape")


def _damaged(files: Files, what: str) -> CheckpointDamaged:
    return CheckpointDamaged(
        f"The log of Spark's file sink, {files.location}, {what}.",
        remedy="Restore that directory from a copy. Without it nothing tells which files of the table belong to a batch.",
    )
