"""Looks up size and modification time of input files, in local or mounted directories and in the checkpoint's store."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from penstock.blob import Found, open_store
from penstock.blob.url import BlobUrl, is_blob, parse
from penstock.checkpoint.source_log import InputFile
from penstock.errors import Failed, Usage

_AT_ONCE = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """Present state of an input file. `size_bytes` is None if the file is gone.

    `modified_ms` is None where it is not comparable with the time that Spark logs: connectors of object stores have their own.
    """

    size_bytes: int | None
    modified_ms: int | None = None

    @property
    def is_gone(self) -> bool:
        """Whether the file does not exist any more."""
        return self.size_bytes is None


class InputListing:
    """Looks up input files: local ones, and those in the same bucket, container or HDFS as `checkpoint`, with its `options`."""

    def __init__(self, checkpoint: str = "", *, options: Mapping[str, Any] | None = None) -> None:
        self._store = parse(checkpoint) if is_blob(checkpoint) else None
        self._options = dict(options or {})

    def at(self, files: Sequence[InputFile]) -> Sequence[Seen | None]:
        """Return the state of each file, None if not visible from here. Costs one stat or request per file. Raises Retryable."""
        if not any(is_blob(file.path) for file in files):
            return [self._one(file) for file in files]
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return list(pool.map(self._one, files))

    def _one(self, file: InputFile) -> Seen | None:
        """Look up one file. Spark logs URLs percent-encoded."""
        parts = urlsplit(file.path)
        if parts.scheme in {"", "file"}:
            return _local(Path(unquote(parts.path)))
        return self._in_store(f"{parts.scheme}://{parts.netloc}{unquote(parts.path)}")

    def _in_store(self, url: str) -> Seen | None:
        if self._store is None or not is_blob(url):
            return None
        try:
            place = parse(url)
            if _root(place) != _root(self._store):
                return None
            folder, _, name = str(place).rpartition("/")
            return _seen(place, open_store(folder, options=self._options).head(name))
        except (Usage, Failed):  # the name is no valid key, or only Spark has the permission to read it
            return None


def _root(place: BlobUrl) -> tuple[str, str, str]:
    return place.kind, place.host, place.bucket


def _seen(place: BlobUrl, found: Found | None) -> Seen:
    if found is None:
        return Seen(size_bytes=None)
    return Seen(size_bytes=found.size_bytes, modified_ms=found.modified_ms if place.kind == "hdfs" else None)


def _local(path: Path) -> Seen:
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return Seen(size_bytes=None)
    return Seen(size_bytes=status.st_size, modified_ms=status.st_mtime_ns // 1_000_000)
