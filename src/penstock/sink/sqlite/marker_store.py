"""Store of the markers in the database file."""

import sqlite3
from contextlib import AbstractContextManager

from penstock.core.faults import FaultPoint
from penstock.sink.sqlite.database import disk_error
from penstock.sink.sqlite.statements import MARKER_STATEMENTS, MARKER_TABLE
from penstock.sink.sqlite.table_schema import table_schema_of
from penstock.sink.table.marker import LEDGER_ID
from penstock.sink.table.marker_store import DatabaseMarkerStore

MARK = FaultPoint("sqlite.mark", "The marker is set to the batch, in the transaction of its rows.")


class SqliteMarkerStore(DatabaseMarkerStore[str]):
    """A `DatabaseMarkerStore` in an SQLite file, whose write lock excludes other publishers."""

    def __init__(self, cursor: sqlite3.Cursor, *, named: bool = True) -> None:
        super().__init__(cursor.execute, MARKER_STATEMENTS, locking=False, named=named)
        cursor.row_factory = None

    def _marking(self) -> AbstractContextManager[None]:
        return MARK.around(error=disk_error, lost=disk_error)


def readable_marker_store(cursor: sqlite3.Cursor) -> SqliteMarkerStore | None:
    """Return the markers, also those of an older Penstock; None if their table does not exist."""
    table_schema = table_schema_of(cursor, MARKER_TABLE)
    return (
        None
        if table_schema is None
        else SqliteMarkerStore(cursor, named=any(column.name == LEDGER_ID for column in table_schema.columns))
    )
