"""The duckdb sink: rows and marker in one transaction on a file, which is open only during that transaction."""

import os
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb

from penstock.core.faults import FaultPoint
from penstock.core.model import Finding, PipelineName, Publication, Totals
from penstock.errors import Conflict, OutcomeUnknown, Usage
from penstock.sink.duckdb import statements as sql
from penstock.sink.duckdb.database import BUSY_TIMEOUT_S, Database, lock_of
from penstock.sink.duckdb.errors import diagnose_file, disk_error, is_conflict
from penstock.sink.duckdb.load import load
from penstock.sink.duckdb.marker_store import DuckdbMarkerStore
from penstock.sink.duckdb.preparation import (
    content_of,
    name_markers,
    prepare_table,
    readable_marker_store,
    require_exact_key,
    require_fit,
    require_schema_accepted,
    require_storable,
    require_told_apart,
    require_written,
    table_schema_of,
)
from penstock.sink.duckdb.row_validator import RowValidator
from penstock.sink.table.publication import Loaded
from penstock.sink.table.server import ServerSink
from penstock.sink.table.sink import TableSinkArguments
from penstock.sink.table.target import Target, table_gone
from penstock.spark.schema import arrow_schema

if TYPE_CHECKING:
    from typing_extensions import Unpack

BEGIN = FaultPoint("duckdb.begin", "The file is open and a transaction begun.")
COMMIT = FaultPoint("duckdb.commit", "Rows and marker are committed.")
PREPARE = FaultPoint("duckdb.prepare", "Table and marker are created and committed.")


class DuckdbSink(ServerSink["duckdb.DuckDBPyConnection"]):
    """Delivers into one table of a DuckDB file, as described in `TableSink`.

    Between publications the file is closed, because DuckDB lets one process in at a time. While another process has it open,
    the sink waits up to `busy_timeout_s`, then raises Retryable.
    """

    _database: Database

    def __init__(
        self, *, path: "str | os.PathLike[str]", busy_timeout_s: float = BUSY_TIMEOUT_S, **filling: "Unpack[TableSinkArguments]"
    ) -> None:
        if os.fspath(path) in {"", ":memory:"}:
            raise Usage("A database in memory is lost at exit.", remedy="Name a file, or use a sink of type memory.")
        super().__init__(**filling)
        self._database = Database(os.fspath(path), busy_timeout_s=busy_timeout_s)
        self._lock = lock_of(self._database.path)

    def check(self) -> Sequence[Finding]:
        """Look at the file, or at the directory where it would be created."""
        directory = Path(self._database.path).parent
        if self._database.exists or (directory.is_dir() and os.access(directory, os.W_OK)):
            return super().check()
        message = f"{self._database.path} is missing and cannot be created in {directory}"
        return [Finding(subject=f"sink {self._name}", ok=False, message=message)]

    def prepare(self, *, pipeline: PipelineName, schema: str | None) -> None:
        """Create or check the file, the table and its marker. Raise Usage, Refused, Failed, Retryable."""
        if not self._database.exists:
            if schema is None:
                self._spool.prepare(pipeline)
                return
            if self._create:
                self._database.create()
        super().prepare(pipeline=pipeline, schema=schema)
        self.close()

    # --- what is DuckDB's own

    def _described(self, rows: str) -> str:
        table = f"table {self._target.table} of {self._database.path}"
        return f"one transaction: Arrow into a temporary table, {rows} {table}; the file is closed in between"

    def _existing_table(self, connection: "duckdb.DuckDBPyConnection") -> tuple[str, bool] | None:
        table_schema = table_schema_of(connection, self._target.table)
        if table_schema is None:
            return None
        return f"{table_schema.kind} {self._target.table} with {len(table_schema.columns)} columns", table_schema.kind == "table"

    def _prepare_table(self, connection: "duckdb.DuckDBPyConnection", pipeline: PipelineName, schema: str) -> RowValidator:
        with PREPARE.around(error=disk_error, lost=disk_error):
            connection.execute(sql.BEGIN)
            validator = prepare_table(
                connection, pipeline=pipeline, sink=self._name, schema=schema, target=self._target, create=self._create
            )
            connection.execute(sql.COMMIT)
        return validator

    def _require_schema_accepted(self, connection: "duckdb.DuckDBPyConnection", pipeline: PipelineName, schema: str) -> None:
        require_schema_accepted(
            connection, pipeline=pipeline, sink=self._name, schema=schema, target=self._target, create=self._create
        )

    def _marker_store(self, connection: "duckdb.DuckDBPyConnection") -> DuckdbMarkerStore:
        return DuckdbMarkerStore(connection)

    def _readable_marker_store(self, connection: "duckdb.DuckDBPyConnection") -> DuckdbMarkerStore | None:
        return readable_marker_store(connection)

    def _name_markers(self, connection: "duckdb.DuckDBPyConnection") -> None:
        name_markers(connection)

    def _begin(self, connection: "duckdb.DuckDBPyConnection") -> None:
        with BEGIN.around(error=disk_error, lost=disk_error):
            connection.execute(sql.BEGIN)

    def _load(self, connection: "duckdb.DuckDBPyConnection", publication: Publication, target: Target) -> Loaded:
        """Check the table again, then load: DuckDB would cast the rows to whatever types its columns have by now."""
        schema, table_schema = arrow_schema(publication.schema), table_schema_of(connection, target.table)
        if table_schema is None:
            raise table_gone(target.table)
        require_fit(table_schema, schema, target, require_storable(connection, schema, target), decided=True)
        require_exact_key(connection, schema, target, decided=True)
        require_told_apart(connection, schema, target)
        require_written(connection, table_schema, schema, target)
        with closing(self._spool.read(publication.staged, pipeline=publication.pipeline)) as rows:
            return load(connection, rows, schema, target)

    def _commit(self, connection: "duckdb.DuckDBPyConnection") -> None:
        try:
            with COMMIT.around(error=disk_error, lost=disk_error):
                connection.execute(sql.COMMIT)
        except duckdb.Error as cause:
            if is_conflict(cause):
                raise Conflict(str(cause)) from cause
            seen = diagnose_file(cause, self._database.path)
            raise OutcomeUnknown(
                f"The COMMIT of table {self._target.table!r} in {self._database.path} gave no answer: {seen.reason}.",
                remedy=f"{seen.advice} and try again: the marker in the database says whether it happened.",
            ) from cause
        self._database.drop()

    def _content(self, connection: "duckdb.DuckDBPyConnection", schema: str) -> Totals:
        return content_of(connection, arrow_schema(schema), self._target)
