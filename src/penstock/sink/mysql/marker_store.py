"""Store of the markers in the database of the user's table."""

from contextlib import AbstractContextManager

from penstock.core.faults import FaultPoint
from penstock.sink.mysql import statements as sql
from penstock.sink.table.marker_store import DatabaseMarkerStore
from penstock.sql.mysql.connection import Connection
from penstock.sql.mysql.errors import connection_lost

FENCE = FaultPoint("mysql.fence", "The marker's row is locked and read: nobody else publishes until this transaction ends.")
MARK = FaultPoint("mysql.mark", "The marker is set to the batch, in the transaction of its rows.")


class MysqlMarkerStore(DatabaseMarkerStore[str]):
    """A `DatabaseMarkerStore` on a MySQL connection."""

    def __init__(self, connection: Connection, *, locking: bool, named: bool = True) -> None:
        super().__init__(connection.execute, sql.marker_statements(), locking=locking, named=named)

    def _fencing(self) -> AbstractContextManager[None]:
        return FENCE.around(error=connection_lost, lost=connection_lost)

    def _marking(self) -> AbstractContextManager[None]:
        return MARK.around(error=connection_lost, lost=connection_lost)
