"""`MakesChange`, which a publication calls before each try to commit, and `Decided`, the checks and counts of all its kinds."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from penstock.core.model import Publication, Totals
from penstock.errors import PublishFailed, Refused
from penstock.sink.lake.growth import left_out
from penstock.sink.lake.log import Change, TableFile, TableSnapshot
from penstock.sink.lake.reader import FileReader
from penstock.sink.lake.staging import partition_values
from penstock.sink.lake.write_mode import APPEND, TableContent, WriteMode
from penstock.sink.parquet.layout import PartitionColumn, partitions
from penstock.sink.table.marker import NO_ROWS
from penstock.spark.schema import arrow_schema


class MakesChange(Protocol):
    """Makes the change that commits decided rows. One object for each publication; used by one thread."""

    def make(self, snapshot: TableSnapshot) -> Change:
        """Return the change to commit on `snapshot`. The files that it adds lie durably in the table's directory.

        Raises StagedDataLost for pieces that are gone: another driver may have published them. Raises Conflict if what it wrote
        was swept meanwhile, PublishFailed, Retryable, and what reading the table raises.
        """
        ...

    def is_waiting(self) -> bool:
        """Return whether a piece is still staged, which proves that its batch is not published."""
        ...

    def settle(self, *, committed: Change | None, seen: TableSnapshot | None, is_settled: bool) -> None:
        """Remove what tries wrote and no version of the table has. Called once the publication is durable.

        `committed`: the change, if this process committed it; else `seen` shows the publication. `is_settled`: whether no other
        object, of this run or an earlier one, can have left files. Raises nothing: what cannot be removed is garbage.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """A publication, its write mode, and a reader that reads the table's files as rows of its schema."""

    publication: Publication
    mode: WriteMode
    reader: FileReader

    def fitting_columns(self, snapshot: TableSnapshot) -> Sequence[PartitionColumn]:
        """Return the table's partition columns. Raises PublishFailed if the table would read the files as other rows."""
        publication, there = self.publication, snapshot.partition_by
        names = there if self.mode.is_by_key or not publication.staged else _partition_names(publication)
        try:
            snapshot.require_supported(self.mode)
            snapshot.require_fit(publication.schema, names)
        except Refused as misfit:
            raise PublishFailed(
                f"Batch {publication.batch.batch_id} is decided, but: {misfit.message}",
                remedy=f"{snapshot.way_back} and start again: the batch is published then.",
            ) from misfit
        return partitions(arrow_schema(publication.schema), there)

    def require_none_lost(self, snapshot: TableSnapshot, rewritten: Iterable[TableFile]) -> None:
        """Raise PublishFailed if files that are to be rewritten have values in columns that the decided rows lack."""
        filled = self.reader.filled_column(rewritten, list(left_out(snapshot, self.publication.schema)))
        if filled is not None:
            raise PublishFailed(
                f"Batch {self.publication.batch.batch_id} is decided without column {filled!r}, but the table has values in it. "
                "Rewriting files for the batch would lose them.",
                remedy="If it was renamed, give it its old name back, and another one to the column that has that name now; else "
                f"set {filled!r} to NULL in all rows of the table. Then start again: the batch is published.",
            )

    def content_before(self, snapshot: TableSnapshot) -> TableContent:
        """Return what the table shows of this sink: as counted, or as it is read, if rows were only ever appended until now.

        Before the first publication it shows the rows of others that it keeps.
        """
        publication = self.publication
        counted = snapshot.content(publication.pipeline, publication.sink)
        if counted is not None:
            return counted
        is_first = self._is_first(snapshot)
        if is_first and not self.mode.keeps_rows:
            return TableContent(write=APPEND)
        there = self.content_of(snapshot.files())
        return TableContent(write=APPEND, decided=NO_ROWS if is_first else there, shown=there)

    def counts(self, snapshot: TableSnapshot) -> bool:
        """Return whether the commit counts what the table shows: not while rows were only ever appended to an empty table."""
        publication = self.publication
        if self.mode.write != APPEND or snapshot.content(publication.pipeline, publication.sink) is not None:
            return True
        return self.counts_first(snapshot)

    def counts_first(self, snapshot: TableSnapshot) -> bool:
        """Return whether this is the first commit of the sink, and counts rows of others that the table holds."""
        return self.mode.keeps_rows and self._is_first(snapshot) and next(snapshot.files(), None) is not None

    def _is_first(self, snapshot: TableSnapshot) -> bool:
        return snapshot.marker(self.publication.pipeline, self.publication.sink) is None

    def content_of(self, files: Iterable[TableFile]) -> Totals:
        """Return the rows of files, with their digest."""
        return sum((self.reader.content(file) for file in files), Totals())


def _partition_names(publication: Publication) -> tuple[str, ...]:
    """Return the columns that the batch was partitioned by when it was staged."""
    return tuple(partition_values(publication.staged[0].name))
