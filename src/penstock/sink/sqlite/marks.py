"""Markers in the database file."""

import sqlite3
from contextlib import AbstractContextManager

from penstock.faults import FaultPoint
from penstock.sink.sqlite.database import broken_disk
from penstock.sink.sqlite.statements import OF_MARKS
from penstock.sink.table.marks import DatabaseMarks

MARK = FaultPoint("sqlite.mark", "The marker is set to the batch, in the transaction of its rows.")


class SqliteMarks(DatabaseMarks[str]):
    """As `DatabaseMarks`. The write lock of the file keeps others out."""

    def __init__(self, cursor: sqlite3.Cursor) -> None:
        super().__init__(cursor.execute, OF_MARKS, locking=False)
        cursor.row_factory = None

    def _marking(self) -> AbstractContextManager[None]:
        return MARK.around(error=broken_disk, lost=broken_disk)
