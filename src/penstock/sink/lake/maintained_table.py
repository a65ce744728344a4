"""`MaintainedTable`: a sink's table as a round of maintenance finds it, after a batch was published."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from penstock.core.model import Publication
from penstock.sink.lake.log import TableLog, TableSnapshot
from penstock.sink.lake.reader import FileReader
from penstock.sink.lake.staging import file_of
from penstock.sink.lake.table_writer import TableWriter
from penstock.sink.parquet.account import Area
from penstock.sink.parquet.layout import is_owned, is_parquet

HOUR_MS: Final = 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintainedTable:
    """The table of `log`, in which `publication` and all before it are published. `reader` reads files with its columns.

    `sync` makes all commits up to a version durable, or raises PublishFailed: then, and whenever it is called again.
    """

    publication: Publication
    log: TableLog
    reader: FileReader
    writer: TableWriter
    sync: Callable[[int], None]

    @property
    def area(self) -> Area:
        return self.writer.area

    def wrote(self, name: str) -> bool:
        """Return whether this sink wrote the file, as tasks or publishing or a compaction do: flat in the directory."""
        return file_of(name) == name and is_owned(name, self.writer.owner) and is_parquet(name)

    def newest(self) -> TableSnapshot | None:
        """Return the newest snapshot; None if the table is gone, or is not this ledger's. Raises Retryable, Failed."""
        snapshot = self.log.newest()
        if snapshot is None:
            return None
        with self.log.reading():
            return snapshot if self.owns(snapshot) else None

    def owns(self, snapshot: TableSnapshot) -> bool:
        """Return whether the snapshot shows what the publication's ledger decided, and nobody else."""
        marker = snapshot.marker(self.publication.pipeline, self.publication.sink)
        return marker is not None and marker.ledger_id in {None, self.publication.ledger_id}


class CleansTable(Protocol):
    """Removes what only older versions of a table have."""

    def describe(self) -> str:
        """Return what is removed, as the end of a sentence."""
        ...

    def clean(self, table: MaintainedTable) -> None:
        """Remove it. Raises Conflict if somebody else changed the table meanwhile, and what table, library and place raise."""
        ...
