"""`MaintainedTable`: a sink's table as a round of maintenance finds it, after a batch was published."""

from dataclasses import dataclass
from typing import Protocol

from penstock.core.model import BatchId, Generation, Publication
from penstock.sink.lake.log import TableLog, TableSnapshot
from penstock.sink.lake.reader import FileReader
from penstock.sink.lake.table_writer import TableWriter
from penstock.sink.parquet.account import Area


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintainedTable:
    """The table of `log`, in which `publication` and all before it are published. `reader` reads files with its columns."""

    publication: Publication
    log: TableLog
    reader: FileReader
    writer: TableWriter

    @property
    def area(self) -> Area:
        return self.writer.area

    @property
    def order(self) -> tuple[Generation, BatchId]:
        """The key of the publication, by which files are sorted as `order_of` sorts them."""
        return self.publication.generation, self.publication.batch.batch_id

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

    def clean(self, table: MaintainedTable) -> None:
        """Remove it. Raises Conflict if somebody else changed the table meanwhile, and what table, library and place raise."""
        ...
