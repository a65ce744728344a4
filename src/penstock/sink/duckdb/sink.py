"""The duckdb sink: rows and marker in one transaction on a file, which is open only during that transaction."""

import os
from collections.abc import Mapping
from contextlib import AbstractContextManager, closing
from typing import TYPE_CHECKING, Any

import duckdb

from penstock.core.faults import FaultPoint
from penstock.core.model import PipelineName, Publication, Totals
from penstock.sink.duckdb import statements as sql
from penstock.sink.duckdb.database import Database, disk_error, lock_of
from penstock.sink.duckdb.load import load, scan
from penstock.sink.duckdb.row_validator import RowValidator
from penstock.sink.duckdb.statements import TableStatements
from penstock.sink.duckdb.table_schema import (
    TableSchema,
    create_table,
    declared_for,
    rehearse,
    require_fit,
    require_told_apart,
    require_written,
    table_schema_of,
)
from penstock.sink.spool.writer import RowCheck
from penstock.sink.table.content import totals_of
from penstock.sink.table.file import BUSY_TIMEOUT_S, FileSink
from penstock.sink.table.marker_store import DatabaseMarkerStore
from penstock.sink.table.publication import Loaded
from penstock.sink.table.sink import TableSinkArguments
from penstock.sink.table.target import Target, table_gone
from penstock.spark.schema import arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from typing_extensions import Unpack

BEGIN = FaultPoint("duckdb.begin", "The file is open and a transaction begun.")
MARK = FaultPoint("duckdb.mark", "The marker is set to the batch, in the transaction of its rows.")
COMMIT = FaultPoint("duckdb.commit", "Rows and marker are committed.")
PREPARE = FaultPoint("duckdb.prepare", "Table and marker are created and committed.")


class DuckdbMarkerStore(DatabaseMarkerStore[str]):
    """The markers of one file. The lock of the file keeps other processes out, `database.lock_of` the other threads."""

    def __init__(self, connection: "duckdb.DuckDBPyConnection", *, named: bool = True) -> None:
        def execute(statement: str, values: Mapping[str, Any]) -> "duckdb.DuckDBPyConnection":
            return connection.execute(statement, dict(values))

        super().__init__(execute, sql.MARKER_STATEMENTS, locking=False, named=named)

    def _marking(self) -> AbstractContextManager[None]:
        return MARK.around(error=disk_error, lost=disk_error)


class DuckdbSink(FileSink["duckdb.DuckDBPyConnection", TableSchema]):
    """Delivers into one table of a DuckDB file, as described in `TableSink`.

    Between publications the file is closed, because DuckDB lets one process in at a time. While another process has it open,
    the sink waits up to `busy_timeout_s`, then raises Retryable.
    """

    def __init__(
        self, *, path: "str | os.PathLike[str]", busy_timeout_s: float = BUSY_TIMEOUT_S, **filling: "Unpack[TableSinkArguments]"
    ) -> None:
        self._database = Database(path, busy_timeout_s=busy_timeout_s)
        super().__init__(**filling)
        self._lock = lock_of(self._database.path)

    def prepare(self, *, pipeline: PipelineName, schema: str | None) -> None:
        """Create or check the file, the table and its marker, and close the file. Raise Usage, Refused, Failed, Retryable."""
        super().prepare(pipeline=pipeline, schema=schema)
        self.close()

    # --- preparing

    def _described(self, rows: str) -> str:
        table = f"table {self._target.table} of {self._database.path}"
        return f"one transaction: Arrow into a temporary table, {rows} {table}; the file is closed in between"

    def _existing_table(self, connection: "duckdb.DuckDBPyConnection") -> tuple[str, bool] | None:
        table_schema = self._table_schema(connection)
        if table_schema is None:
            return None
        return f"{table_schema.kind} {self._target.table} with {len(table_schema.columns)} columns", table_schema.kind == "table"

    def _name_markers(self, connection: "duckdb.DuckDBPyConnection") -> None:
        table_schema = table_schema_of(connection, sql.MARKER_TABLE)
        if table_schema is not None and not table_schema.is_named:
            connection.execute(sql.ADD_LEDGER_ID)

    def _prepare_table(self, connection: "duckdb.DuckDBPyConnection", pipeline: PipelineName, schema: str) -> RowCheck:
        with PREPARE.around(error=disk_error, lost=disk_error):
            connection.execute(sql.BEGIN)
            for statement in sql.CREATE_OWN:
                connection.execute(statement)
            row_validator = self._prepared(connection, pipeline, schema)
            connection.execute(sql.COMMIT)
        return row_validator

    def _table_schema(self, connection: "duckdb.DuckDBPyConnection") -> TableSchema | None:
        return table_schema_of(connection, self._target.table)

    def _require_storable(self, connection: "duckdb.DuckDBPyConnection", rows: "pa.Schema") -> None:
        declared_for(connection, rows, self._target)

    def _create_table(self, connection: "duckdb.DuckDBPyConnection", rows: "pa.Schema") -> None:
        create_table(connection, rows, self._target)

    def _require_fit(self, connection: "duckdb.DuckDBPyConnection", table_schema: TableSchema, rows: "pa.Schema") -> None:
        require_fit(connection, table_schema, rows, self._target)

    def _rehearse(self, connection: "duckdb.DuckDBPyConnection", rows: "pa.Schema") -> None:
        rehearse(connection, rows, self._target)

    def _row_check(self, table_schema: TableSchema, rows: "pa.Schema") -> RowValidator:  # noqa: ARG002 - it goes by the table
        required = table_schema.required | {name.lower() for name in self._target.key}
        return RowValidator(sink=self._name, table=self._target.table, required=required)

    # --- publishing

    def _marker_store(self, connection: "duckdb.DuckDBPyConnection") -> DuckdbMarkerStore:
        return DuckdbMarkerStore(connection)

    def _readable_marker_store(self, connection: "duckdb.DuckDBPyConnection") -> DuckdbMarkerStore | None:
        table_schema = table_schema_of(connection, sql.MARKER_TABLE)
        return None if table_schema is None else DuckdbMarkerStore(connection, named=table_schema.is_named)

    def _begin(self, connection: "duckdb.DuckDBPyConnection") -> None:
        with BEGIN.around(error=disk_error, lost=disk_error):
            connection.execute(sql.BEGIN)

    def _load(self, connection: "duckdb.DuckDBPyConnection", publication: Publication, target: Target) -> Loaded:
        """Check the table again, then load: DuckDB would cast the rows to whatever types its columns have by now."""
        schema, table_schema = arrow_schema(publication.schema), self._table_schema(connection)
        if table_schema is None:
            raise table_gone(target.table)
        require_fit(connection, table_schema, schema, target, decided=True)
        require_told_apart(connection, schema, target)
        require_written(connection, table_schema, schema, target)
        with closing(self._spool.read(publication.staged, pipeline=publication.pipeline)) as rows:
            return load(connection, rows, schema, target)

    def _commit(self, connection: "duckdb.DuckDBPyConnection") -> None:
        with self._database.unknown_if_cut(self._target.table), COMMIT.around(error=disk_error, lost=disk_error):
            connection.execute(sql.COMMIT)
        self._database.drop()

    def _content(self, connection: "duckdb.DuckDBPyConnection", schema: str) -> Totals:
        rows = arrow_schema(schema)
        query = TableStatements(self._target.table, tuple(rows.names)).read
        return totals_of(scan(connection, query, rows), self._target.row_digest)
