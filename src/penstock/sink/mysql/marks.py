"""Markers in the database of the user's table, read and written in an open transaction."""

from collections.abc import Sequence
from typing import Any

import pymysql
from pymysql.constants import CR

from penstock.faults import FaultPoint
from penstock.model import PipelineName, Position, Publication, SinkName
from penstock.sink.mysql import statements as sql
from penstock.sink.mysql.connection import Connection
from penstock.sink.table.marker import (
    REMEMBERED_BATCHES,
    TableMarker,
    batch_values,
    marker_from,
    marker_values,
    place_of,
)

FENCE = FaultPoint("mysql.fence", "The marker's row is locked and read: nobody else publishes until this transaction ends.")
MARK = FaultPoint("mysql.mark", "The marker is set to the batch, in the transaction of its rows.")


class MysqlMarks:
    """As `Marks`. `locking`: reading a marker locks its row, and waits for a transaction of another run that holds it."""

    def __init__(self, connection: Connection, *, locking: bool) -> None:
        self._connection, self._locking = connection, locking

    def read(self, pipeline: PipelineName, sink: SinkName) -> TableMarker | None:
        """The marker, None if there is none yet. Raises FormatTooNew."""
        which = {"pipeline": pipeline, "sink": sink}
        if not self._locking:
            row = self._connection.execute(sql.READ_MARKER, which).fetchone()
        else:
            with FENCE.around(error=cut_off, lost=cut_off):
                row = self._connection.execute(sql.LOCK_MARKER, which).fetchone()
        return None if row is None else marker_from(row, pipeline, sink)

    def write(self, marker: TableMarker) -> None:
        """Put the marker in place of the old one."""
        values = marker_values(marker)
        if not self._connection.execute(sql.CHANGE_MARKER, values).rowcount:
            self._connection.execute(sql.MAKE_MARKER, values)

    def owners(self, table: str) -> Sequence[tuple[PipelineName, SinkName]]:
        """Every pipeline and sink whose marker names that table."""
        rows = self._connection.execute(sql.OWNERS, {"table": table}).fetchall()
        return [(PipelineName(pipeline), SinkName(sink)) for pipeline, sink in rows]

    def newest_batch(self, pipeline: PipelineName, sink: SinkName) -> Position | None:
        """The last position that the batches remember."""
        [position] = self._connection.execute(sql.NEWEST_BATCH, {"pipeline": pipeline, "sink": sink}).fetchone()
        return None if position is None else Position(position)

    def batch_at(self, publication: Publication) -> tuple[Any, ...] | None:
        """What was published at that position."""
        found: tuple[Any, ...] | None = self._connection.execute(sql.READ_BATCH, place_of(publication)).fetchone()
        return found

    def advance(self, marker: TableMarker, publication: Publication) -> None:
        """Write the marker and note the batch."""
        with MARK.around(error=cut_off, lost=cut_off):
            self.write(marker)
            self._connection.execute(sql.WRITE_BATCH, batch_values(publication))
            past = {**place_of(publication), "position": publication.position - REMEMBERED_BATCHES}
            self._connection.execute(sql.FORGET_BATCHES, past)


def cut_off(point: str) -> pymysql.err.Error:
    """What PyMySQL would raise at a fault point where the connection breaks."""
    return pymysql.err.OperationalError(CR.CR_SERVER_LOST, f"Lost connection to MySQL server during query ({point})")
