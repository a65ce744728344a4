"""`TableWriter`: the driver itself writes rows of a table into new files, which no reader sees before a commit adds them."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from penstock.core.faults import FaultPoint
from penstock.core.model import Attempt, Publication, Staged, new_nonce
from penstock.errors import Conflict, PenstockError, Retryable, StageFailed
from penstock.protocols import SCHEMA_KEY
from penstock.sink.lake.log import TableFile, TableLog, TableSnapshot
from penstock.sink.lake.staging import as_file, file_of, partition_values
from penstock.sink.lake.statistics import STATISTICS
from penstock.sink.parquet.account import Area, PieceState
from penstock.sink.parquet.stager import ParquetStager
from penstock.sink.parquet.table import table_schema

COLLECT = FaultPoint("lakeleft.collect", "A file that was written for a try without a commit is removed.")

LEFT = "The %s: %s is in no version of the table, but could not be removed: %s. A full vacuum removes it."

_log = logging.getLogger(__name__)


def step_error(point: str) -> Retryable:
    """Return the error of an armed fault point."""
    return Retryable(f"{point} failed.", remedy="Try again.")


def unhashed(rows: "pa.RecordBatch") -> "pa.UInt64Array":
    """Return zeros for rows whose digest nobody needs."""
    return pa.array(np.zeros(len(rows), np.uint64))


def try_after(publication: Publication) -> Attempt:
    """Return a try of the driver's to write files, whose names tell the batch."""
    return Attempt(
        generation=publication.generation,
        batch_id=publication.batch.batch_id,
        partition=0,
        task_attempt=0,
        nonce=new_nonce(),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TableWriter:
    """Writes files as tasks do, and moves them into the table's directory. Nothing is inline; the statistics are in `ref`."""

    stager: ParquetStager
    area: Area

    @property
    def owner(self) -> str:
        """The owner in the names of the files."""
        return self.stager.settings.owner

    def with_files(self, *, prefix: str, target_bytes: int) -> "TableWriter":
        """Return a writer of files of about that size, whose names begin with `prefix`."""
        settings = replace(self.stager.settings, prefix=prefix, target_file_size_bytes=target_bytes)
        return replace(self, stager=replace(self.stager, settings=settings))

    def write(
        self,
        rows: "Iterable[pa.RecordBatch]",
        attempt: Attempt,
        *,
        schema: str,
        snapshot: TableSnapshot,
        hashes_of: "Callable[[pa.RecordBatch], pa.UInt64Array]" = unhashed,
    ) -> Sequence[Staged]:
        """Write rows of Spark's `schema`, for a table as the snapshot has it. Return the files, which are staged.

        Their digests are sums of what `hashes_of` returns. Raises Retryable for what cannot be written, and what `rows` raises.
        """
        columns = table_schema(schema)
        settings = replace(self.stager.settings, field_ids=snapshot.field_ids, partition_by=snapshot.partition_by)
        with _staging_errors():
            opened = replace(self.stager, settings=settings)
            writer = opened.open(attempt, columns.with_metadata({SCHEMA_KEY: schema.encode()}))
            try:
                for batch in rows:
                    stored = _cast(batch, columns)
                    writer.write(stored, hashes=hashes_of(stored), accounts=None)
                return writer.finish()
            except BaseException:
                writer.abandon()
                raise

    def show(self, pieces: Sequence[Staged]) -> None:
        """Move files into the table's directory, and look at each. Raises Conflict if a sweep or a vacuum took one."""
        files = [as_file(piece) for piece in pieces]
        gone = self.area.show(files)
        if gone or any(self.area.state(file) is not PieceState.SHOWN for file in files):
            raise Conflict("files that were written for the commit were removed before it")


def added(piece: Staged) -> TableFile:
    """Return the file of a piece for the table's log."""
    values: Mapping[str, str | None] = partition_values(piece.name)
    statistics = str(piece.ref[STATISTICS])
    return TableFile(path=file_of(piece.name), size_bytes=piece.totals.size_bytes, values=values, statistics=statistics)


def remove_unseen(log: TableLog, name: str) -> None:
    """Remove a file that no version has, nor ever will. What cannot be removed is garbage, of which the driver's log tells."""
    try:
        with COLLECT.around(error=step_error, lost=step_error):
            log.remove(name)
    except (PenstockError, OSError) as error:
        _log.warning(LEFT, log.title, name, error)


def _cast(batch: "pa.RecordBatch", schema: "pa.Schema") -> "pa.RecordBatch":
    columns = [
        column if column.type == field.type else column.cast(field.type)
        for field, column in zip(schema, batch.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


@contextmanager
def _staging_errors() -> Iterator[None]:
    """Raise Retryable for what fails while files are written: the rows are still where they were read."""
    try:
        yield
    except StageFailed as failure:
        raise Retryable(f"Files of the table cannot be written: {failure.message}", remedy=failure.remedy) from failure
