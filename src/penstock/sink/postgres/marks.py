"""Markers in the schema of the user's table."""

from psycopg.sql import Composed

from penstock.faults import FaultPoint
from penstock.postgres.database import Connection
from penstock.postgres.trouble import cut_off
from penstock.sink.postgres.statements import OwnStatements
from penstock.sink.table.marks import DatabaseMarks, MarkFaults

FENCE = FaultPoint("postgres.fence", "The marker's row is locked and read: nobody else publishes until this transaction ends.")
MARK = FaultPoint("postgres.mark", "The marker is set to the batch, in the transaction of its rows.")


class PostgresMarks(DatabaseMarks[Composed]):
    """As `DatabaseMarks`; `locking`: with its fence."""

    def __init__(self, connection: Connection, schema: str, *, locking: bool) -> None:
        faults = MarkFaults(fence=FENCE if locking else None, mark=MARK, broken=cut_off)
        super().__init__(connection.execute, OwnStatements(schema).of_marks(), faults)
