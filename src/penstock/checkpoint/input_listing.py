"""What can be seen of input files from here: those in local or mounted directories, and those in the store of the checkpoint."""

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
    """An input file as it is now. `size_bytes` is None if it is gone.

    `modified_ms` is None where it cannot be compared with what Spark logs: connectors of object stores have times of their own.
    """

    size_bytes: int | None
    modified_ms: int | None = None

    @property
    def is_gone(self) -> bool:
        """Whether it is not there any more."""
        return self.size_bytes is None


class InputListing:
    """Looks at input files; in a store, at those in the bucket, container or HDFS of the `checkpoint`, with its `options`."""

    def __init__(self, checkpoint: str = "", *, options: Mapping[str, Any] | None = None) -> None:
        self._store = parse(checkpoint) if is_blob(checkpoint) else None
        self._options = dict(options or {})

    def at(self, files: Sequence[InputFile]) -> Sequence[Seen | None]:
        """Each of `files` as it is now, None for one that cannot be seen. Costs one stat or request a file. Raises Retryable."""
        if not any(is_blob(file.path) for file in files):
            return [self._one(file) for file in files]
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return list(pool.map(self._one, files))

    def _one(self, file: InputFile) -> Seen | None:
        """Spark logs URLs in which spaces and their like are escaped."""
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
        except (Usage, Failed):  # a name that is no key; or Penstock may not read what Spark may
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
