"""The interface `Files`, through which readers of a checkpoint access the store that holds it.

Readers name files by relative paths with `/`; everything specific to a store stays behind `Files`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from penstock.blob import open_store
from penstock.blob.url import is_blob
from penstock.checkpoint.blob_files import BlobFiles
from penstock.errors import Retryable, Usage
from penstock.support.filesystem_errors import problem_of
from penstock.support.secret import scheme_only


class Files(Protocol):
    """The files below one directory. A missing file or folder gives `None` or an empty result, never an error.

    Thread-safe. Every method raises Retryable if the store cannot be reached (permission, network), or Failed if a retry cannot
    help (credentials, no such bucket).
    """

    @property
    def location(self) -> str:
        """The directory or URL, for messages."""
        ...

    def names(self, folder: str) -> tuple[str, ...]:
        """Return the names directly below `folder`, unordered; empty if the folder does not exist."""
        ...

    def sizes(self, folder: str) -> Mapping[str, int | None]:
        """Return the names directly below `folder` with the size of each file, and None for each directory."""
        ...

    def size_bytes(self, name: str) -> int | None:
        """Return the size of a file, None if it does not exist."""
        ...

    def modified_ms(self, name: str) -> int | None:
        """Return when a file was last written (Unix time), None if it does not exist."""
        ...

    def read(self, name: str, *, start: int = 0, size_bytes: int | None = None) -> bytes | None:
        """Return at most `size_bytes` bytes of a file from `start` on; None if the file does not exist."""
        ...

    def delete(self, name: str) -> None:
        """Delete one file if it exists. Only `penstock.checkpoint.repair` calls this."""
        ...


class LocalFiles:
    """`Files` below a local or mounted directory. `sizes` costs a listing and a stat per file."""

    def __init__(self, root: Path) -> None:
        self._root = root

    @property
    def location(self) -> str:
        return str(self._root)

    def names(self, folder: str) -> tuple[str, ...]:
        try:
            return tuple(entry.name for entry in (self._root / folder).iterdir())
        except (FileNotFoundError, NotADirectoryError):
            return ()
        except OSError as error:
            raise _unreadable(self._root / folder, error) from error

    def sizes(self, folder: str) -> Mapping[str, int | None]:
        found = {name: self._root / folder / name for name in self.names(folder)}
        return {name: None if path.is_dir() else self.size_bytes(str(path)) or 0 for name, path in found.items()}

    def size_bytes(self, name: str) -> int | None:
        try:
            return (self._root / name).stat().st_size
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise _unreadable(self._root / name, error) from error

    def modified_ms(self, name: str) -> int | None:
        try:
            return (self._root / name).stat().st_mtime_ns // 1_000_000
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise _unreadable(self._root / name, error) from error

    def read(self, name: str, *, start: int = 0, size_bytes: int | None = None) -> bytes | None:
        try:
            with (self._root / name).open("rb") as file:
                file.seek(start)
                return file.read() if size_bytes is None else file.read(size_bytes)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None
        except OSError as error:
            raise _unreadable(self._root / name, error) from error

    def delete(self, name: str) -> None:
        try:
            (self._root / name).unlink(missing_ok=True)
        except OSError as error:
            problem = problem_of(error)
            raise Retryable(
                f"{self._root / name} cannot be removed: {problem.reason}.", remedy=f"{problem.advice}, then try again."
            ) from error


def open_files(path: str | Path, *, options: Mapping[str, Any] | None = None) -> Files:
    """Open the files below `path`: a local path, a `file:` URL, or the URL of a store with its `options`.

    A `file:` URL is taken literally, as Hadoop does: `%20` is three characters. Raises Usage for stores that cannot be read, and
    DependencyMissing.
    """
    if is_blob(str(path)):
        return BlobFiles(open_store(str(path), options=options))
    return LocalFiles(_local(str(path)))


def _local(path: str) -> Path:
    scheme, colon, _ = path.partition(":")
    if not colon or "/" in scheme or scheme == "":
        return Path(path)
    if scheme == "file":
        return Path(path.removeprefix("file:").removeprefix("//"))
    raise Usage(
        f"The checkpoint is at {scheme_only(path)}, expected a directory, a file:// URL, or one of s3, az, gs or hdfs.",
        remedy="Copy the checkpoint to a directory, or mount the store.",
    )


def _unreadable(path: Path, error: OSError) -> Retryable:
    problem = problem_of(error)
    return Retryable(f"{path} cannot be read: {problem.reason}.", remedy=f"{problem.advice}, then try again.")
