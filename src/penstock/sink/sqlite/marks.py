"""Markers in the database file, read and written in an open transaction."""

import sqlite3
from collections.abc import Sequence
from typing import Any

from penstock.faults import FaultPoint
from penstock.model import PipelineName, Position, Publication, SinkName
from penstock.sink.sqlite import statements as sql
from penstock.sink.sqlite.database import broken_disk
from penstock.sink.table.marker import (
    REMEMBERED_BATCHES,
    TableMarker,
    batch_values,
    marker_from,
    marker_values,
    place_of,
)

MARK = FaultPoint("sqlite.mark", "The marker is set to the batch, in the transaction of its rows.")


class SqliteMarks:
    """As `Marks`. The write lock of the file keeps others out."""

    def __init__(self, cursor: sqlite3.Cursor) -> None:
        self._cursor = cursor
        cursor.row_factory = None

    def read(self, pipeline: PipelineName, sink: SinkName) -> TableMarker | None:
        """The marker, None if there is none yet. Raises FormatTooNew."""
        row = self._cursor.execute(sql.READ_MARKER, {"pipeline": pipeline, "sink": sink}).fetchone()
        return None if row is None else marker_from(row, pipeline, sink)

    def write(self, marker: TableMarker) -> None:
        """Put the marker in place of the old one."""
        self._cursor.execute(sql.WRITE_MARKER, marker_values(marker))

    def owners(self, table: str) -> Sequence[tuple[PipelineName, SinkName]]:
        """Every pipeline and sink whose marker names that table, in upper or lower case."""
        return self._cursor.execute(sql.OWNERS, (table,)).fetchall()

    def newest_batch(self, pipeline: PipelineName, sink: SinkName) -> Position | None:
        """The last position that the batches remember."""
        position: Position | None = self._cursor.execute(sql.NEWEST_BATCH, (pipeline, sink)).fetchone()[0]
        return position

    def batch_at(self, publication: Publication) -> tuple[Any, ...] | None:
        """What was published at that position."""
        found: tuple[Any, ...] | None = self._cursor.execute(sql.READ_BATCH, place_of(publication)).fetchone()
        return found

    def advance(self, marker: TableMarker, publication: Publication) -> None:
        """Write the marker and note the batch."""
        with MARK.around(error=broken_disk, lost=broken_disk):
            self.write(marker)
            self._cursor.execute(sql.WRITE_BATCH, batch_values(publication))
            past = publication.position - REMEMBERED_BATCHES
            self._cursor.execute(sql.FORGET_BATCHES, {**place_of(publication), "position": past})
