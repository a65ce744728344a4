"""The task side of a directory account: files below the staging directory, durable before they are reported."""

import os
import socket
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from penstock.core.faults import FaultPoint
from penstock.errors import StageFailed
from penstock.sink.parquet.account import Allowance, Finished, Upload, UploadArea
from penstock.support.filesystem_errors import translate_os_errors
from penstock.support.private_files import io_error, sync_directory

OPEN = FaultPoint("parquet.stage.open", "A task creates a staged file.")
WRITE = FaultPoint("parquet.stage.write", "A task writes bytes of a staged file.", tears=True)
SYNC = FaultPoint("parquet.stage.sync", "A task makes the bytes of a staged file durable.")
SEAL = FaultPoint("parquet.stage.seal", "A task makes the names of its staged files durable.")

PIECES = "pieces"
SUFFIX = ".staged"
_BUFFER_BYTES = 1 << 20


def staged_name(name: str) -> str:
    """Return the name of the file below `pieces/` that waits to be published as `name`."""
    return name.rpartition("/")[2] + SUFFIX


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryUploads(UploadArea):
    """Staged files of one area. `identity` names a file in it that only the driver's own directory has."""

    directory: str
    identity: str

    def open(self, name: str, *, allowance: Allowance) -> "DirectoryUpload":  # noqa: ARG002 - a move is as cheap as a write
        """Begin a staged file. Raises StageFailed, also on a machine where the path is another directory."""
        self._require_shared()
        return DirectoryUpload(Path(self.directory, PIECES, staged_name(name)))

    def seal(self) -> None:
        directory = Path(self.directory, PIECES)
        with _translate_errors(directory), SEAL.around(error=io_error, lost=io_error):
            sync_directory(directory)

    def _require_shared(self) -> None:
        if not Path(self.directory, self.identity).exists():
            raise StageFailed(
                f"The staging directory {self.directory} on {socket.gethostname()} is not the one of the driver: "
                f"{self.identity} is missing in it.",
                remedy="An account that is a directory must be mounted at the same path on the driver and on every executor.",
            )


class DirectoryUpload(Upload):
    """One staged file being written."""

    def __init__(self, path: Path) -> None:
        """Create the file. Raises StageFailed."""
        self._path, self.size_bytes = path, 0
        self._file: BinaryIO | None = None
        with ExitStack() as unless_created, _translate_errors(path):
            unless_created.callback(self.abandon)
            with OPEN.around(error=io_error, lost=io_error):
                self._file = open(path, "xb", buffering=_BUFFER_BYTES)  # noqa: SIM115 - finish or abandon closes it
            unless_created.pop_all()

    def write(self, data: bytes) -> int:
        if self._file is not None:
            with _translate_errors(self._path), WRITE.around(error=io_error, lost=io_error):
                WRITE.write(self._file, data)
        self.size_bytes += len(data)
        return len(data)

    def finish(self) -> Finished:
        """Make the bytes durable. Raises StageFailed; a failed fsync is never repeated."""
        file = self._file
        if file is None:
            raise AssertionError(f"{self._path} was abandoned")
        with _translate_errors(self._path):
            file.flush()
            with SYNC.around(error=io_error, lost=io_error):
                os.fsync(file.fileno())
            file.close()
        self._file = None
        return Finished(ref={"staged": self._path.name})

    def abandon(self) -> None:
        """Close the file as it is. Bytes that cannot be written any more are not needed."""
        file, self._file = self._file, None
        if file is not None:
            with suppress(OSError):
                file.close()


def _translate_errors(path: Path) -> AbstractContextManager[None]:
    then = " and start again: nothing of the batch was decided."
    return translate_os_errors(StageFailed, f"Staging to {path} failed", then=then)
