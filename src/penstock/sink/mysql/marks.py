"""Markers in the database of the user's table."""

from contextlib import AbstractContextManager

from penstock.faults import FaultPoint
from penstock.mysql.connection import Connection
from penstock.mysql.trouble import cut_off
from penstock.sink.mysql import statements as sql
from penstock.sink.table.marker import TableMarker, marker_values
from penstock.sink.table.marks import DatabaseMarks

FENCE = FaultPoint("mysql.fence", "The marker's row is locked and read: nobody else publishes until this transaction ends.")
MARK = FaultPoint("mysql.mark", "The marker is set to the batch, in the transaction of its rows.")


class MysqlMarks(DatabaseMarks[str]):
    """As `DatabaseMarks`."""

    def __init__(self, connection: Connection, *, locking: bool) -> None:
        super().__init__(connection.execute, sql.of_marks(), locking=locking)

    def _fencing(self) -> AbstractContextManager[None]:
        return FENCE.around(error=cut_off, lost=cut_off)

    def _marking(self) -> AbstractContextManager[None]:
        return MARK.around(error=cut_off, lost=cut_off)

    def write(self, marker: TableMarker) -> None:
        """Put the marker in place of the old one, whose row stays: another one would be another lock."""
        values = marker_values(marker)
        if not self._execute(self._sql.write_marker, values).rowcount:
            self._execute(sql.MAKE_MARKER, values)
