"""`DurableFileIO`: metadata files of a table in a directory are on the disk before a catalog names them.

The library leaves that to the operating system. After a power loss a catalog could point at a file without content, and the
table could not be read any more.
"""

import os
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

from penstock.support.private_files import create_durably, sync_directory


class DurableFile(PyArrowFile):
    """A file of a local directory. `create` gives a stream that is durable once it is closed."""

    def create(self, overwrite: bool = False) -> Any:  # noqa: FBT001, FBT002 - the library's signature
        """Open a stream that writes the file. Raises FileExistsError unless `overwrite`."""
        path = Path(urlparse(self.location).path)
        create_durably(path.parent)
        return _DurableStream(path, overwrite=overwrite)


class DurableFileIO(PyArrowFileIO):
    """The library's `PyArrowFileIO`, but what it writes to a local directory is durable."""

    def new_output(self, location: str) -> PyArrowFile:
        """Return the file at `location`, not yet created."""
        plain = super().new_output(location)
        if urlparse(location).scheme not in {"", "file"}:
            return plain
        return DurableFile(location=location, path=plain._path, fs=plain._filesystem)


class _DurableStream:
    def __init__(self, path: Path, *, overwrite: bool) -> None:
        self._path = path
        self._file = path.open("wb" if overwrite else "xb")

    def write(self, data: bytes) -> int:
        return self._file.write(data)

    def tell(self) -> int:
        return self._file.tell()

    def close(self) -> None:
        if self._file.closed:
            return
        with self._file:
            self._file.flush()
            os.fsync(self._file.fileno())
        sync_directory(self._path.parent)

    def __enter__(self) -> "_DurableStream":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
