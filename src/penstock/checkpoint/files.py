"""The one seam between the readers of a checkpoint and the store that holds it.

Readers name files by relative paths with `/`; everything that is specific to a store lives behind `Files`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from penstock.blob import open_store
from penstock.blob.url import is_blob
from penstock.checkpoint.blob_files import BlobFiles
from penstock.errors import Retryable, Usage
from penstock.support.filesystem_errors import problem_of
from penstock.support.secret import outlined


class Files(Protocol):
    """The files below one directory. Absence is an answer (`None`, empty), never an error.

    Safe to use from several threads. Every method raises Retryable when the store cannot be asked (permission, network), or
    Failed where trying again is no use (credentials, no such bucket).
    """

    @property
    def location(self) -> str:
        """Where it is, for people."""
        ...

    def names(self, folder: str) -> tuple[str, ...]:
        """The names directly below `folder` in no order; empty if there is no such folder."""
        ...

    def sizes(self, folder: str) -> Mapping[str, int | None]:
        """As `names`, with the size of each file, and None for each directory."""
        ...

    def size_bytes(self, name: str) -> int | None:
        """The size of a file, None if there is none."""
        ...

    def modified_ms(self, name: str) -> int | None:
        """When a file was last written (Unix time), None if there is none."""
        ...

    def read(self, name: str, *, start: int = 0, size_bytes: int | None = None) -> bytes | None:
        """The bytes of a file from `start` on, at most `size_bytes` of them; None if there is no such file."""
        ...

    def delete(self, name: str) -> None:
        """Remove one file, if it is there. Only `penstock.checkpoint.repair` does."""
        ...


class LocalFiles:
    """Files below a local or mounted directory."""

    def __init__(self, root: Path) -> None:
        self._root = root

    @property
    def location(self) -> str:
        """The directory."""
        return str(self._root)

    def names(self, folder: str) -> tuple[str, ...]:
        """One directory listing."""
        try:
            return tuple(entry.name for entry in (self._root / folder).iterdir())
        except (FileNotFoundError, NotADirectoryError):
            return ()
        except OSError as error:
            raise _unreadable(self._root / folder, error) from error

    def sizes(self, folder: str) -> Mapping[str, int | None]:
        """One directory listing, and a stat for each file."""
        found = {name: self._root / folder / name for name in self.names(folder)}
        return {name: None if path.is_dir() else self.size_bytes(str(path)) or 0 for name, path in found.items()}

    def size_bytes(self, name: str) -> int | None:
        """One stat."""
        try:
            return (self._root / name).stat().st_size
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise _unreadable(self._root / name, error) from error

    def modified_ms(self, name: str) -> int | None:
        """One stat."""
        try:
            return (self._root / name).stat().st_mtime_ns // 1_000_000
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise _unreadable(self._root / name, error) from error

    def read(self, name: str, *, start: int = 0, size_bytes: int | None = None) -> bytes | None:
        """One open file, closed again."""
        try:
            with (self._root / name).open("rb") as file:
                file.seek(start)
                return file.read() if size_bytes is None else file.read(size_bytes)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None
        except OSError as error:
            raise _unreadable(self._root / name, error) from error

    def delete(self, name: str) -> None:
        """One unlink."""
        try:
            (self._root / name).unlink(missing_ok=True)
        except OSError as error:
            problem = problem_of(error)
            raise Retryable(
                f"{self._root / name} cannot be removed: {problem.reason}.", remedy=f"{problem.advice}, then try again."
            ) from error


def open_files(path: str | Path, *, options: Mapping[str, Any] | None = None) -> Files:
    """The files below `path`: a local path, a `file:` URL taken literally as Hadoop does (`%20` is three characters), or a URL
    of a store, which `options` are those of.

    Raises Usage for stores that cannot be read, DependencyMissing.
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
        f"The checkpoint is at {outlined(path)}, expected a directory, a file:// URL, or one of s3, az, gs or hdfs.",
        remedy="Copy the checkpoint to a directory, or mount the store.",
    )


def _unreadable(path: Path, error: OSError) -> Retryable:
    problem = problem_of(error)
    return Retryable(f"{path} cannot be read: {problem.reason}.", remedy=f"{problem.advice}, then try again.")
