"""The markers of the redshift sink, in the schema of the user's table."""

from typing import Any

from penstock.core.model import PipelineName, SinkName
from penstock.sink.redshift.database import Connection
from penstock.sink.redshift.statements import PATIENT, OwnStatements
from penstock.sink.table.dialect import FaultPoints
from penstock.sink.table.marker import TableMarker
from penstock.sink.table.sql_sink import SqlMarkerStore


class RedshiftMarkerStore(SqlMarkerStore):
    """The markers of one schema. The fence is locked first, since a transaction sees only what is older than itself."""

    def __init__(self, connection: Connection, own: OwnStatements, points: FaultPoints, *, locking: bool, **naming: Any) -> None:
        super().__init__(connection, own.marker_statements(), points, locking=False, **naming)
        self._connection, self._lock, self._locks = connection, own.lock, locking

    def read(self, pipeline: PipelineName, sink: SinkName) -> TableMarker | None:
        if self._locks:
            self._lock_fence()
        return super().read(pipeline, sink)

    def _lock_fence(self) -> None:
        """Exclude every other publisher, after waiting for it up to the session's lock timeout, which ends here."""
        with self._fencing():
            self._connection.execute(self._lock)
        self._connection.execute(PATIENT)
        self._locks = False
