"""Opening of the ledger that `ledger:` in the pipeline file names."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from penstock.blob import open_store
from penstock.blob.url import is_blob
from penstock.core.model import PipelineName
from penstock.errors import DependencyMissing, Usage
from penstock.ledger.directory import DirectoryStore
from penstock.ledger.log import LogLedger
from penstock.ledger.sqlite import SqliteLedger
from penstock.ledger.store import BlobLedgerStore
from penstock.protocols import Ledger
from penstock.support.extras import install_command
from penstock.support.secret import scheme_only

SUPPORTED = "sqlite:///FILE, postgresql://…, mysql://…, file:///DIRECTORY, the path of a directory or a URL of s3, az, gs or hdfs"
_SQLITE, _FILE = "sqlite:///", "file:///"
_POSTGRES, _MYSQL = ("postgresql://", "postgres://"), ("mysql://", "mariadb://")


def open_ledger(place: str, *, pipeline: PipelineName, options: Mapping[str, Any] | None = None) -> Ledger:
    """Return the ledger at `place`, which the caller made absolute. Nothing is read, created or proved yet.

    `sqlite:////data/ledger.db` and `file:///data/ledger` name absolute paths, `sqlite:///ledger.db` one relative to the working
    directory. Paths are literal, as everywhere in the pipeline file. `options` are those of a store such as S3, or for PostgreSQL
    the `schema` of the table. Raises Usage for every other scheme, DependencyMissing.
    """
    if is_blob(place):
        return LogLedger(BlobLedgerStore(open_store(place, options=options)), pipeline=pipeline)
    if place.startswith(_POSTGRES):
        with _installed_by("postgres", "PostgreSQL"):
            from penstock.ledger.postgres import PostgresLedger  # noqa: PLC0415 - its client is an extra
        return PostgresLedger(place, pipeline=pipeline, **(options or {}))
    if place.startswith(_MYSQL):
        with _installed_by("mysql", "MySQL"):
            from penstock.ledger.mysql import MysqlLedger  # noqa: PLC0415 - its client is an extra
        return MysqlLedger(place, pipeline=pipeline)
    path = place.removeprefix(_SQLITE)
    if place.startswith(_SQLITE) and path.strip("/"):
        return SqliteLedger(Path(path), pipeline=pipeline)
    if place.startswith(_FILE):
        return LogLedger(DirectoryStore(Path("/", place.removeprefix(_FILE))), pipeline=pipeline)
    if place and (place.startswith("/") or ":" not in place):
        return LogLedger(DirectoryStore(Path(place)), pipeline=pipeline)
    raise Usage(f"A ledger at {scheme_only(place)} is not supported.", remedy=f"Use {SUPPORTED}.")


@contextmanager
def _installed_by(extra: str, database: str) -> Iterator[None]:
    try:
        yield
    except ImportError as cause:
        raise DependencyMissing(
            f"A ledger in {database} needs the package {cause.name}, which is not installed.",
            remedy=f"Install it on the driver: {install_command(extra)}",
        ) from cause
