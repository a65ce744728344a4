"""The duckdb sink: rows and marker in one transaction on a file, which is open only during that transaction."""

from typing import TYPE_CHECKING

import duckdb

from penstock.core.faults import FaultPoint
from penstock.core.model import PipelineName
from penstock.sink.duckdb import statements as sql
from penstock.sink.duckdb.database import Database, disk_error
from penstock.sink.duckdb.load import dry_run, read_there, write
from penstock.sink.duckdb.table_schema import TABLES, TableSchema
from penstock.sink.table.dialect import FaultPoints
from penstock.sink.table.file import FileSink
from penstock.sink.table.preparation import settings_of

if TYPE_CHECKING:
    import pyarrow as pa

BEGIN = FaultPoint("duckdb.begin", "The file is open and a transaction begun.")
MARK = FaultPoint("duckdb.mark", "The marker is set to the batch, in the transaction of its rows.")
COMMIT = FaultPoint("duckdb.commit", "Rows and marker are committed.")
PREPARE = FaultPoint("duckdb.prepare", "Table and marker are created and committed.")


class DuckdbSink(FileSink["duckdb.DuckDBPyConnection", TableSchema]):
    """Delivers into one table of a DuckDB file, as described in `TableSink`.

    Between publications the file is closed, because DuckDB lets one process in at a time. While another process has it open,
    the sink waits up to `busy_timeout_s`, then raises Retryable.
    """

    _database_type = Database
    _tables = TABLES
    _widens = True
    _compares = True
    _points = FaultPoints.of(disk_error, prepare=PREPARE.around, begin=BEGIN.around, mark=MARK.around, commit=COMMIT.around)
    _own_statements = sql.OwnStatements
    _write = staticmethod(write)
    _read_there = staticmethod(read_there)

    def _prepare_target(self, pipeline: PipelineName, schema: str | None) -> None:
        super()._prepare_target(pipeline, schema)
        self.close()

    def _described(self, rows: str) -> str:
        table = f"table {self._target.table} of {self._database.path}"
        return f"one transaction: Arrow into a temporary table, {rows} {table}; the file is closed in between"

    def _storable(self, connection: "duckdb.DuckDBPyConnection", schema: str) -> "pa.Schema":
        rows = super()._storable(connection, schema)
        with settings_of(self._name):
            TABLES.storage_of(connection, rows)
        return rows

    def _dry_run(self, connection: "duckdb.DuckDBPyConnection", rows: "pa.Schema") -> None:
        dry_run(connection, rows, self._target)

    def _commit(self, connection: "duckdb.DuckDBPyConnection") -> None:
        super()._commit(connection)
        self._database.drop()
