"""Store of the markers in the schema of the user's table."""

from contextlib import AbstractContextManager

from psycopg.sql import Composed

from penstock.core.faults import FaultPoint
from penstock.sink.postgres.statements import OwnStatements
from penstock.sink.table.marker_store import DatabaseMarkerStore
from penstock.sql.postgres.database import Connection
from penstock.sql.postgres.errors import connection_lost
from penstock.sql.postgres.names import split_name

FENCE = FaultPoint("postgres.fence", "The marker's row is locked and read: nobody else publishes until this transaction ends.")
MARK = FaultPoint("postgres.mark", "The marker is set to the batch, in the transaction of its rows.")


class PostgresMarkerStore(DatabaseMarkerStore[Composed]):
    """A `DatabaseMarkerStore` on a PostgreSQL connection, for the markers in `schema`."""

    def __init__(self, connection: Connection, schema: str, *, locking: bool, named: bool = True) -> None:
        statements = OwnStatements(schema).marker_statements()
        super().__init__(connection.execute, statements, locking=locking, named=named, split_name=split_name)

    def _fencing(self) -> AbstractContextManager[None]:
        return FENCE.around(error=connection_lost, lost=connection_lost)

    def _marking(self) -> AbstractContextManager[None]:
        return MARK.around(error=connection_lost, lost=connection_lost)
