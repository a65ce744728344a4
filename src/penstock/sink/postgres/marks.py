"""Markers in the schema of the user's table, read and written in an open transaction."""

from collections.abc import Sequence
from typing import Any

from penstock.faults import FaultPoint
from penstock.model import PipelineName, Position, Publication, SinkName
from penstock.postgres.database import Connection
from penstock.postgres.trouble import cut_off
from penstock.sink.postgres.statements import OwnStatements
from penstock.sink.table.marker import (
    REMEMBERED_BATCHES,
    TableMarker,
    batch_values,
    marker_from,
    marker_values,
    place_of,
)

FENCE = FaultPoint("postgres.fence", "The marker's row is locked and read: nobody else publishes until this transaction ends.")
MARK = FaultPoint("postgres.mark", "The marker is set to the batch, in the transaction of its rows.")


class PostgresMarks:
    """As `Marks`. `locking`: reading a marker locks its row, and waits for a transaction of another run that holds it."""

    def __init__(self, connection: Connection, schema: str, *, locking: bool) -> None:
        self._connection, self._own, self._locking = connection, OwnStatements(schema), locking

    def read(self, pipeline: PipelineName, sink: SinkName) -> TableMarker | None:
        """The marker, None if there is none yet. Raises FormatTooNew."""
        which = {"pipeline": pipeline, "sink": sink}
        if not self._locking:
            row = self._connection.execute(self._own.read_marker, which).fetchone()
        else:
            with FENCE.around(error=cut_off, lost=cut_off):
                row = self._connection.execute(self._own.lock_marker, which).fetchone()
        return None if row is None else marker_from(row, pipeline, sink)

    def write(self, marker: TableMarker) -> None:
        """Put the marker in place of the old one."""
        self._connection.execute(self._own.write_marker, marker_values(marker))

    def owners(self, table: str) -> Sequence[tuple[PipelineName, SinkName]]:
        """Every pipeline and sink whose marker names that table."""
        rows = self._connection.execute(self._own.owners, (table,)).fetchall()
        return [(PipelineName(pipeline), SinkName(sink)) for pipeline, sink in rows]

    def newest_batch(self, pipeline: PipelineName, sink: SinkName) -> Position | None:
        """The last position that the batches remember."""
        row = self._connection.execute(self._own.newest_batch, (pipeline, sink)).fetchone()
        return None if row is None or row[0] is None else Position(row[0])

    def batch_at(self, publication: Publication) -> tuple[Any, ...] | None:
        """What was published at that position."""
        return self._connection.execute(self._own.read_batch, place_of(publication)).fetchone()

    def advance(self, marker: TableMarker, publication: Publication) -> None:
        """Write the marker and note the batch."""
        with MARK.around(error=cut_off, lost=cut_off):
            self.write(marker)
            self._connection.execute(self._own.write_batch, batch_values(publication))
            past = {**place_of(publication), "position": publication.position - REMEMBERED_BATCHES}
            self._connection.execute(self._own.forget_batches, past)
