"""Where the pieces of one sink lie, and the proof that driver and executors mean the same place.

The driver puts an empty file `<nonce>.id` into the directory and tells its name to the tasks. A task that does not see it is on
a machine where the spool is not mounted: what it wrote there would be decided and could never be published, so it fails instead.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from penstock.diskreason import trouble_of
from penstock.errors import Failed, StageFailed
from penstock.faults import FaultPoint
from penstock.model import PipelineName, SinkName, new_nonce

CLAIM = FaultPoint("spool.claim", "The driver creates the spool directory of a sink and its identity.")

_ID_SUFFIX = ".id"


def directory_of(root: str, pipeline: PipelineName, sink: SinkName) -> Path:
    """`<root>/<pipeline>/<sink>`, with characters escaped that could leave it."""
    return Path(root) / _segment(pipeline) / _segment(sink)


def _segment(name: str) -> str:
    return quote(name, safe=" ").replace(".", "%2E") if name.startswith(".") else quote(name, safe=" ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A spool directory as its driver claimed it; picklable, for the tasks."""

    directory: str
    identity: str

    def require_shared(self) -> None:
        """Raise StageFailed unless this process sees the directory that the driver claimed."""
        if not Path(self.directory, self.identity).exists():
            raise StageFailed(
                f"The spool {self.directory} on this machine is not the one the driver uses: {self.identity} is missing in it.",
                remedy="Put `spool:` on storage that is mounted at the same path on the driver and on every executor.",
            )


def claim(directory: Path) -> Place:
    """Create the directory durably if it is missing and give its identity. Raises Failed."""
    try:
        with CLAIM.around(error=OSError, lost=OSError):
            directory.mkdir(parents=True, exist_ok=True)
            identity = _identity(directory) or _create_identity(directory)
    except OSError as cause:
        trouble = trouble_of(cause)
        raise Failed(
            f"The spool directory {directory} cannot be created or read: {trouble.reason}.",
            remedy=f"{trouble.advice}, for the driver and the executors, or change `spool:`; then start again.",
        ) from cause
    return Place(directory=str(directory), identity=identity)


def _identity(directory: Path) -> str | None:
    return min((path.name for path in directory.glob(f"*{_ID_SUFFIX}")), default=None)


def _create_identity(directory: Path) -> str:
    name = new_nonce() + _ID_SUFFIX
    (directory / name).touch(exist_ok=False)
    for path in (directory, directory.parent, directory.parent.parent):
        sync_directory(path)
    return name


def sync_directory(path: "str | Path") -> None:
    """Make the names in a directory durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
