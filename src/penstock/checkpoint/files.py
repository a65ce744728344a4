"""The interface `Files`, through which readers of a checkpoint access the store that holds it.

Readers name files by relative paths with `/`; everything specific to a store stays behind `Files`.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeVar

from penstock.blob import BlobStore, open_store
from penstock.blob.url import is_blob
from penstock.errors import Retryable, Usage
from penstock.support.filesystem_errors import translate_os_errors
from penstock.support.private_files import create_durably, sync_directory, sync_file
from penstock.support.secret import scheme_only

T = TypeVar("T")
_BLOCK_BYTES = 1 << 20
_TAG = "checkpoint"
"""What is noted on copied objects."""


class Files(Protocol):
    """The files below one directory. A missing file or folder gives `None` or an empty result, never an error.

    Thread-safe. Every method raises Retryable if the store cannot be reached (permission, network), or Failed if a retry cannot
    help (credentials, no such bucket).
    """

    @property
    def location(self) -> str:
        """The directory or URL, for messages."""

    def names(self, folder: str) -> tuple[str, ...]:
        """Return the names directly below `folder`, unordered; empty if the folder does not exist."""

    def sizes(self, folder: str) -> Mapping[str, int | None]:
        """Return the names directly below `folder` with the size of each file, and None for each directory."""

    def size_bytes(self, name: str) -> int | None:
        """Return the size of a file, None if it does not exist."""

    def read(self, name: str, *, start: int = 0, size_bytes: int | None = None) -> bytes | None:
        """Return at most `size_bytes` bytes of a file from `start` on; None if the file does not exist."""

    def delete(self, name: str) -> None:
        """Delete one file durably if it exists. Only `repair`, `copying` and `acting` of this package call this."""

    def write(self, name: str, data: bytes) -> None:
        """Create or replace one file as a whole, durably, with its folders. Only `copying` and `acting` call this."""


class LocalFiles:
    """`Files` below a local or mounted directory. `sizes` costs a listing and a stat per file."""

    def __init__(self, root: Path) -> None:
        self._root = root

    @property
    def location(self) -> str:
        return str(self._root)

    def names(self, folder: str) -> tuple[str, ...]:
        def listed(path: Path) -> tuple[str, ...]:
            return tuple(os.listdir(path))  # noqa: PTH208 - a Path for each of 100,000 names takes seconds

        return self._read(folder, listed) or ()

    def sizes(self, folder: str) -> Mapping[str, int | None]:
        found = {name: f"{folder}/{name}" if folder else name for name in self.names(folder)}
        return {name: None if (self._root / place).is_dir() else self.size_bytes(place) or 0 for name, place in found.items()}

    def size_bytes(self, name: str) -> int | None:
        return self._read(name, lambda path: path.stat().st_size)

    def read(self, name: str, *, start: int = 0, size_bytes: int | None = None) -> bytes | None:
        def part(path: Path) -> bytes:
            if start == 0 and size_bytes is None:
                with path.open("rb", buffering=0) as whole:
                    return whole.readall()
            with path.open("rb") as file:
                file.seek(start)
                return file.read(-1 if size_bytes is None else size_bytes)

        return self._read(name, part)

    def _read(self, name: str, act: Callable[[Path], T]) -> T | None:
        path = self._root / name
        with translate_os_errors(Retryable, f"{path} cannot be read", then=", then try again."):
            try:
                return act(path)
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
                return None

    def write(self, name: str, data: bytes) -> None:
        path = self._root / name
        with translate_os_errors(Retryable, f"{path} cannot be written", then=", then try again."):
            create_durably(path.parent)
            hidden = _hidden(path)
            hidden.unlink(missing_ok=True)  # it may be a link, and would be written through
            with hidden.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            hidden.replace(path)
            sync_directory(path.parent)

    def delete(self, name: str) -> None:
        path = self._root / name
        with translate_os_errors(Retryable, f"{path} cannot be removed", then=", then try again."):
            _hidden(path).unlink(missing_ok=True)
            if path.exists():
                path.unlink()
                sync_directory(path.parent)

    def link(self, name: str, original: str, *, of: "LocalFiles | None" = None) -> bool:
        """Make `name` a hard link to another file, here or in `of`, durably with its content. Return whether that can be."""
        path = self._root / name
        with translate_os_errors(Retryable, f"{path} cannot be written", then=", then try again."):
            create_durably(path.parent)
            hidden = _hidden(path)
            hidden.unlink(missing_ok=True)
            try:
                hidden.hardlink_to((of or self)._root / original)
                if of is not None:
                    sync_file(hidden)  # which Spark does not
            except OSError:
                hidden.unlink(missing_ok=True)
                return False
            hidden.replace(path)
            hidden.unlink(missing_ok=True)  # a rename between two names of one file does nothing
            sync_directory(path.parent)
        return True

    def is_link(self, name: str, original: str) -> bool:
        """Return whether two files here are one."""

        def identity(path: Path) -> tuple[int, int]:
            found = path.stat()
            return found.st_dev, found.st_ino

        first, second = (self._read(one, identity) for one in (name, original))
        return first is not None and first == second

    def blocks(self, name: str) -> Iterator[memoryview]:
        """Yield the content of a file block by block, each valid until the next one: no copy of a large file is made."""
        path = self._root / name
        with (
            translate_os_errors(Retryable, f"{path} cannot be read", then=", then try again."),
            path.open("rb", buffering=0) as file,
        ):
            block = memoryview(bytearray(_BLOCK_BYTES))
            while size := file.readinto(block):
                yield block[:size]

    def remove_empty(self, folder: str) -> None:
        """Remove a directory and those below it, all of which are empty."""
        path = self._root / folder
        with translate_os_errors(Retryable, f"{path} cannot be removed", then=", then try again."):
            for directory, _, _ in os.walk(path, topdown=False):
                Path(directory).rmdir()


def _hidden(path: Path) -> Path:
    """Return where a file is written before it is renamed to `path`; a kill can leave it."""
    return path.parent / hidden_name(path.name)


def hidden_name(name: str) -> str:
    """Return the name under which a file is written in a directory before it gets its own."""
    return f".{name}.copying"


def places_below(files: Files, folder: str) -> Iterator[str]:
    """Yield every file below `folder` (empty: all), at any depth. Costs a listing for each directory."""
    for name, size_bytes in files.sizes(folder).items():
        place = f"{folder}/{name}" if folder else name
        if size_bytes is None:
            yield from places_below(files, place)
        else:
            yield place


def open_files(path: str | Path, *, options: Mapping[str, Any] | None = None) -> Files:
    """Open the files below `path`: a local path, a `file:` URL, or the URL of a store with its `options`.

    A `file:` URL is taken literally, as Hadoop does: `%20` is three characters. Raises Usage for stores that cannot be read, and
    DependencyMissing.
    """
    place = str(path)
    if is_blob(place):
        return BlobFiles(open_store(place, options=options))
    scheme, colon, _ = place.partition(":")
    if not colon or "/" in scheme or scheme == "":
        return LocalFiles(Path(place))
    if scheme == "file":
        return LocalFiles(Path(place.removeprefix("file:").removeprefix("//")))
    raise Usage(
        f"The checkpoint is at {scheme_only(place)}, expected a directory, a file:// URL, or one of s3, az, gs or hdfs.",
        remedy="Copy the checkpoint to a directory, or mount the store.",
    )


class BlobFiles:
    """`Files` below the root of a store. A folder is a key prefix; nothing is cached between calls.

    `names` and `sizes` cost one listing, other methods one request, except `read`.
    """

    def __init__(self, store: BlobStore) -> None:
        self._store = store

    @property
    def location(self) -> str:
        return self._store.url

    def names(self, folder: str) -> tuple[str, ...]:
        return tuple(self.sizes(folder))

    def sizes(self, folder: str) -> Mapping[str, int | None]:
        start = f"{folder}/" if folder else ""
        return {
            found.key[len(start) :].rstrip("/"): None if found.key.endswith("/") else found.size_bytes
            for found in self._store.children(start)
        }

    def size_bytes(self, name: str) -> int | None:
        found = self._store.head(name)
        return None if found is None else found.size_bytes

    def read(self, name: str, *, start: int = 0, size_bytes: int | None = None) -> bytes | None:
        """Read a whole file with one request, a part with two: stores refuse a range beyond the end, so the size comes first."""
        if start == 0 and size_bytes is None:
            return self._store.get(name)
        whole = self.size_bytes(name)
        if whole is None:
            return None
        length = min(whole - start, whole if size_bytes is None else size_bytes)
        try:
            return self._store.read(name, start=start, length=length) if length > 0 else b""
        except FileNotFoundError:  # deleted after its size was read
            return None

    def write(self, name: str, data: bytes) -> None:
        self._store.put(name, data, tag=_TAG)

    def delete(self, name: str) -> None:
        self._store.delete(name)
