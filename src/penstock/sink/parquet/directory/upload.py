"""The task side of a directory account: files below the staging directory, durable before they are reported."""

import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from penstock.core.faults import FaultPoint
from penstock.errors import StageFailed
from penstock.sink.parquet.account import Allowance, Finished, Upload
from penstock.support.filesystem_errors import problem_of
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
class DirectoryUploads:
    """Staged files of one area. `identity` names a file in it that only the driver's own directory has."""

    directory: str
    identity: str

    def open(self, name: str, *, allowance: Allowance) -> "DirectoryUpload":  # noqa: ARG002 - a move is as cheap as a write
        """Begin a staged file. Raises StageFailed, also on a machine where the path is another directory."""
        self._require_shared()
        upload = DirectoryUpload(Path(self.directory, PIECES, staged_name(name)))
        upload.begin()
        return upload

    def seal(self) -> None:
        """Make the names of the staged files durable. Raises StageFailed."""
        directory = Path(self.directory, PIECES)
        try:
            with SEAL.around(error=io_error, lost=io_error):
                sync_directory(directory)
        except OSError as cause:
            raise _failed(directory, cause) from cause

    def requests_sent(self) -> Mapping[str, int]:
        return {}

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
        self._path, self.size_bytes = path, 0
        self._file: BinaryIO | None = None

    def begin(self) -> None:
        """Create the file. Raises StageFailed."""
        try:
            with OPEN.around(error=io_error, lost=io_error):
                self._file = open(self._path, "xb", buffering=_BUFFER_BYTES)  # noqa: SIM115 - finish or abandon closes it
        except OSError as cause:
            self.abandon()
            raise _failed(self._path, cause) from cause

    def write(self, data: bytes) -> int:
        if self._file is not None:
            try:
                with WRITE.around(error=io_error, lost=io_error):
                    WRITE.write(self._file, data)
            except OSError as cause:
                raise _failed(self._path, cause) from cause
        self.size_bytes += len(data)
        return len(data)

    def finish(self) -> Finished:
        """Make the bytes durable. Raises StageFailed; a failed fsync is never repeated."""
        file = self._file
        if file is None:
            raise AssertionError(f"{self._path} was abandoned")
        try:
            file.flush()
            with SYNC.around(error=io_error, lost=io_error):
                os.fsync(file.fileno())
            file.close()
        except OSError as cause:
            raise _failed(self._path, cause) from cause
        self._file = None
        return Finished(ref={"staged": self._path.name})

    def abandon(self) -> None:
        """Close the file as it is. Bytes that cannot be written any more are not needed."""
        file, self._file = self._file, None
        if file is not None:
            with suppress(OSError):
                file.close()


def _failed(path: Path, cause: OSError) -> StageFailed:
    problem = problem_of(cause)
    return StageFailed(
        f"Staging to {path} failed: {problem.reason}.",
        remedy=f"{problem.advice} and start again: nothing of the batch was decided.",
    )
