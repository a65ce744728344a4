"""The markers behind any driver, locked by an UPDATE of the marker's row: a lock that all databases have."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

from penstock.core.faults import FaultPoint
from penstock.core.model import PipelineName, SinkName
from penstock.sink.dbapi.database import connection_lost
from penstock.sink.dbapi.driver import Session
from penstock.sink.dbapi.sql import Sql
from penstock.sink.dbapi.statements import INSERT_MARKER, LOCK_MARKER, MARKER_STATEMENTS
from penstock.sink.table.marker import TableMarker, marker_values
from penstock.sink.table.marker_store import DatabaseMarkerStore

FENCE = FaultPoint("dbapi.fence", "The row of the marker is locked by writing to it.")
MARK = FaultPoint("dbapi.mark", "The marker is set to the batch, in the transaction of its rows.")


def _folded(name: str) -> tuple[str, str]:
    """Return the name in lower case: whether case counts is unknown, so a table that may be another sink's is taken for it."""
    return "", name.lower()


class DbapiMarkerStore(DatabaseMarkerStore[Sql]):
    """The markers of the dbapi sink. A marker is locked before it is read, so that the newest committed one is read."""

    def __init__(self, session: Session, *, locking: bool, has_ledger_id: bool = True) -> None:
        def execute(statement: Sql, values: Mapping[str, Any]) -> Session:
            return session.execute(statement, values)

        super().__init__(execute, MARKER_STATEMENTS, locking=False, has_ledger_id=has_ledger_id, split_name=_folded)
        self._session, self._locks, self._exists = session, locking, False

    def read(self, pipeline: PipelineName, sink: SinkName) -> TableMarker | None:
        if self._locks:
            with FENCE.around(error=connection_lost, lost=connection_lost):
                self._session.execute(LOCK_MARKER, {"pipeline": pipeline, "sink": sink})
        marker = super().read(pipeline, sink)
        self._exists = marker is not None
        return marker

    def write(self, marker: TableMarker) -> None:
        """Update the marker's row if `read` found one, else insert it."""
        if self._exists:
            super().write(marker)
        else:
            self._session.execute(INSERT_MARKER, marker_values(marker))
            self._exists = True

    def _marking(self) -> AbstractContextManager[None]:
        return MARK.around(error=connection_lost, lost=connection_lost)
