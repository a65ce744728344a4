"""From the pipeline file's `ledger:` to a ledger."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock.blob import open_store
from penstock.bloburl import is_blob
from penstock.errors import Usage
from penstock.ledger.blob import BlobLedgerStore
from penstock.ledger.directory import DirectoryStore
from penstock.ledger.log import LogLedger
from penstock.ledger.sqlite import SqliteLedger
from penstock.model import PipelineName
from penstock.protocols import Ledger

SUPPORTED = "sqlite:///FILE, file:///DIRECTORY, the path of a directory, or a URL of s3, az, gs or hdfs"
_SQLITE, _FILE = "sqlite:///", "file:///"


def open_ledger(place: str, *, pipeline: PipelineName, options: Mapping[str, Any] | None = None) -> Ledger:
    """The ledger at `place`, which the caller made absolute. Nothing is read, created or proved yet.

    `sqlite:////data/ledger.db` and `file:///data/ledger` name absolute paths, `sqlite:///ledger.db` one relative to the
    working directory; paths are taken literally, as everywhere in the pipeline file. `options` are those of a store such as S3.
    Raises Usage for every other scheme, DependencyMissing.
    """
    if is_blob(place):
        return LogLedger(BlobLedgerStore(open_store(place, options=options)), pipeline=pipeline)
    path = place.removeprefix(_SQLITE)
    if place.startswith(_SQLITE) and path.strip("/"):
        return SqliteLedger(Path(path), pipeline=pipeline)
    if place.startswith(_FILE):
        return LogLedger(DirectoryStore(Path("/", place.removeprefix(_FILE))), pipeline=pipeline)
    if place and (place.startswith("/") or ":" not in place):
        return LogLedger(DirectoryStore(Path(place)), pipeline=pipeline)
    shown = place if "@" not in place else place.partition(":")[0] + "://…"
    raise Usage(f"A ledger cannot be kept at {shown!r}.", remedy=f"In this version, name {SUPPORTED}.")
