"""The markers of the redshift sink, in the schema of the user's table."""

from contextlib import AbstractContextManager

from penstock.core.faults import FaultPoint
from penstock.core.model import PipelineName, SinkName
from penstock.sink.redshift.connection import Connection
from penstock.sink.redshift.errors import connection_lost
from penstock.sink.redshift.names import split_name
from penstock.sink.redshift.statements import PATIENT, OwnStatements
from penstock.sink.table.marker import TableMarker
from penstock.sink.table.marker_store import DatabaseMarkerStore

FENCE = FaultPoint("redshift.fence", "The fence is locked: nobody else publishes into this schema until this transaction ends.")
MARK = FaultPoint("redshift.mark", "The marker is set to the batch, in the transaction of its rows.")


class RedshiftMarkerStore(DatabaseMarkerStore[str]):
    """The markers of one schema. The fence is locked first, since a transaction sees only what is older than itself."""

    def __init__(self, connection: Connection, schema: str, *, locking: bool, named: bool = True) -> None:
        own = OwnStatements(schema)
        super().__init__(connection.execute, own.marker_statements(), locking=False, named=named, split_name=split_name)
        self._connection, self._lock, self._locks = connection, own.lock, locking

    def read(self, pipeline: PipelineName, sink: SinkName) -> TableMarker | None:
        if self._locks:
            self.lock()
        return super().read(pipeline, sink)

    def lock(self) -> None:
        """Exclude every other publisher, after waiting for it up to the session's lock timeout, which ends here."""
        with FENCE.around(error=connection_lost, lost=connection_lost):
            self._connection.execute(self._lock)
        self._connection.execute(PATIENT)
        self._locks = False

    def _marking(self) -> AbstractContextManager[None]:
        return MARK.around(error=connection_lost, lost=connection_lost)
