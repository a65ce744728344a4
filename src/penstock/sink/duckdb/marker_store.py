"""The markers in a DuckDB file."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

import duckdb

from penstock.core.faults import FaultPoint
from penstock.sink.duckdb.errors import disk_error
from penstock.sink.duckdb.statements import MARKER_STATEMENTS
from penstock.sink.table.marker_store import DatabaseMarkerStore

MARK = FaultPoint("duckdb.mark", "The marker is set to the batch, in the transaction of its rows.")


class DuckdbMarkerStore(DatabaseMarkerStore[str]):
    """The markers of one file. The lock of the file keeps other processes out, `database.lock_of` the other threads."""

    def __init__(self, connection: "duckdb.DuckDBPyConnection", *, named: bool = True) -> None:
        def execute(statement: str, values: Mapping[str, Any]) -> "duckdb.DuckDBPyConnection":
            return connection.execute(statement, dict(values))

        super().__init__(execute, MARKER_STATEMENTS, locking=False, named=named)

    def _marking(self) -> AbstractContextManager[None]:
        return MARK.around(error=disk_error, lost=disk_error)
