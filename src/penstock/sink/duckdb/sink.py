"""The duckdb sink: rows and marker in one transaction on a file, which is open only during that transaction."""

from typing import TYPE_CHECKING

import duckdb

from penstock.core.faults import FaultPoint
from penstock.core.model import PipelineName
from penstock.sink.duckdb import statements as sql
from penstock.sink.duckdb import table_schema as tables
from penstock.sink.duckdb.database import Database, disk_error
from penstock.sink.duckdb.load import content
from penstock.sink.duckdb.table_schema import TableSchema
from penstock.sink.table.dialect import FaultPoints, SqlDialect
from penstock.sink.table.file import FileSink
from penstock.sink.table.preparation import settings_of

if TYPE_CHECKING:
    import pyarrow as pa

BEGIN = FaultPoint("duckdb.begin", "The file is open and a transaction begun.")
MARK = FaultPoint("duckdb.mark", "The marker is set to the batch, in the transaction of its rows.")
COMMIT = FaultPoint("duckdb.commit", "Rows and marker are committed.")
PREPARE = FaultPoint("duckdb.prepare", "Table and marker are created and committed.")

DUCKDB: SqlDialect["duckdb.DuckDBPyConnection", TableSchema] = SqlDialect(
    points=FaultPoints.of(disk_error, prepare=PREPARE.around, begin=BEGIN.around, mark=MARK.around, commit=COMMIT.around),
    split_name=lambda name: ("main", name),
    own_statements=sql.OwnStatements,
    table_schema_of=lambda connection, _, table: tables.table_schema_of(connection, table),
    require_storable=tables.require_storable,
    create_table=tables.create_table,
    require_fit=tables.require_fit,
    missing_columns=tables.missing_in,
    row_check=tables.row_validator,
    read=content,
    write=tables.write,
)


class DuckdbSink(FileSink["duckdb.DuckDBPyConnection", TableSchema]):
    """Delivers into one table of a DuckDB file, as described in `TableSink`.

    Between publications the file is closed, because DuckDB lets one process in at a time. While another process has it open,
    the sink waits up to `busy_timeout_s`, then raises Retryable.
    """

    _database_type = Database
    _dialect = DUCKDB

    def prepare(self, *, pipeline: PipelineName, schema: str | None) -> None:
        super().prepare(pipeline=pipeline, schema=schema)
        self.close()

    def _described(self, rows: str) -> str:
        table = f"table {self._target.table} of {self._database.path}"
        return f"one transaction: Arrow into a temporary table, {rows} {table}; the file is closed in between"

    def _storable(self, connection: "duckdb.DuckDBPyConnection", schema: str) -> "pa.Schema":
        rows = super()._storable(connection, schema)
        with settings_of(self._name):
            tables.declared_for(connection, rows)
        return rows

    def _dry_run(self, connection: "duckdb.DuckDBPyConnection", rows: "pa.Schema") -> None:
        tables.dry_run(connection, rows, self._target)

    def _commit(self, connection: "duckdb.DuckDBPyConnection") -> None:
        super()._commit(connection)
        self._database.drop()
