"""The markers of the sqlserver sink, in the schema of the user's table."""

from contextlib import AbstractContextManager

from penstock.core.faults import FaultPoint
from penstock.sink.sqlserver.connection import Connection
from penstock.sink.sqlserver.errors import connection_lost
from penstock.sink.sqlserver.names import folded_name
from penstock.sink.sqlserver.statements import OwnStatements
from penstock.sink.table.marker_store import DatabaseMarkerStore

FENCE = FaultPoint("sqlserver.fence", "The marker's row is locked and read: nobody else publishes until this transaction ends.")
MARK = FaultPoint("sqlserver.mark", "The marker is set to the batch, in the transaction of its rows.")


class SqlserverMarkerStore(DatabaseMarkerStore[str]):
    """The markers of one schema, each locked by its row."""

    def __init__(self, connection: Connection, schema: str, *, locking: bool, named: bool = True) -> None:
        statements = OwnStatements(schema).marker_statements()
        super().__init__(connection.execute, statements, locking=locking, named=named, split_name=folded_name)

    def _fencing(self) -> AbstractContextManager[None]:
        return FENCE.around(error=connection_lost, lost=connection_lost)

    def _marking(self) -> AbstractContextManager[None]:
        return MARK.around(error=connection_lost, lost=connection_lost)
