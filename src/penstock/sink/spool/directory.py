"""A spool in a directory: on this machine, or mounted at the same path on the driver and on every executor."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from penstock.sink.spool.place import ID_SUFFIX, Spooled
from penstock.support.private_files import create_private, make_private_directory, open_private, sync_directory


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryPlace:
    """The directory that holds the spool files of one sink."""

    directory: str

    @property
    def where(self) -> str:
        return self.directory

    @property
    def sharing(self) -> str:
        return "Put `spool:` on storage that is mounted at the same path on the driver and on every executor."

    @property
    def is_remote(self) -> bool:
        return False

    def identities(self) -> Sequence[str]:
        make_private_directory(Path(self.directory))
        return [path.name for path in Path(self.directory).glob(f"*{ID_SUFFIX}")]

    def identify(self, name: str) -> None:
        path = Path(self.directory, name)
        create_private(path)
        for directory in list(path.parents)[:3]:
            sync_directory(directory)

    def holds(self, name: str) -> bool:
        return Path(self.directory, name).exists()

    def create(self, name: str) -> "DirectoryFile":
        return DirectoryFile(self.directory, name)

    def open(self, name: str) -> BinaryIO:
        return open(os.path.join(self.directory, name), "rb")

    def spooled(self) -> Iterator[Spooled]:
        directory = Path(self.directory)
        for path in sorted(directory.iterdir()) if directory.exists() else ():
            with suppress(FileNotFoundError):  # discarded meanwhile
                yield Spooled(name=path.name, size_bytes=path.stat().st_size)

    def remove(self, spooled: Spooled) -> None:
        Path(self.directory, spooled.name).unlink(missing_ok=True)

    def requests_sent(self) -> Mapping[str, int]:
        return {}


class DirectoryFile:
    """A `PieceFile` in a directory."""

    def __init__(self, directory: str, name: str) -> None:
        self._directory = directory
        self._file = open_private(Path(directory, name), "xb")

    def write(self, data: bytes) -> int:
        return self._file.write(data)

    def flush(self) -> None:
        self._file.flush()

    def finish(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())
        sync_directory(self._directory)
        self._file.close()

    def drop(self) -> None:
        self._file.close()
