"""The order in which sinks without a `Dialect` prepare a table and its marker: files, and Cassandra."""

from abc import abstractmethod
from typing import TYPE_CHECKING, Generic, TypeVar

from penstock.core.model import PipelineName
from penstock.sink.spool.writer import RowCheck
from penstock.sink.table.database_sink import C, DatabaseSink
from penstock.sink.table.marker import MarkerStore
from penstock.sink.table.preparation import prepare_marker, require_not_lost, settings_of
from penstock.sink.table.target import no_table
from penstock.spark.schema import arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa

S = TypeVar("S")


class PreparedSink(DatabaseSink[C], Generic[C, S]):
    """A `DatabaseSink` whose table is prepared step by step. S is an existing table as the database's catalog declares it."""

    # --- what kinds of databases differ in

    @abstractmethod
    def _marker_store(self, connection: C) -> MarkerStore:
        """Return the markers; reading one excludes other publishers, where the database can."""

    @abstractmethod
    def _table_schema(self, connection: C) -> S | None:
        """Return what exists under the table's name, None if nothing does."""

    @abstractmethod
    def _require_storable(self, connection: C, rows: "pa.Schema") -> None:
        """Raise Usage for rows or settings that no table could satisfy."""

    @abstractmethod
    def _create_table(self, connection: C, rows: "pa.Schema") -> None:
        """Create the table for `rows`."""

    @abstractmethod
    def _require_fit(self, connection: C, table_schema: S, rows: "pa.Schema") -> None:
        """Raise Refused unless the table takes `rows`, gives the same back, and may be written."""

    def _require_unfilled(self, connection: C) -> None:
        """Raise Refused if a sink of the other kind fills the table. Called where the table has no marker of this sink."""

    def _rehearse(self, connection: C, rows: "pa.Schema") -> None:
        """Run the statements of a publication without rows. Raise Refused if the database refuses them."""

    @abstractmethod
    def _row_check(self, table_schema: S, rows: "pa.Schema") -> RowCheck:
        """Return the check of the rows in the tasks."""

    # --- steps

    def _prepared(self, connection: C, pipeline: PipelineName, schema: str) -> RowCheck:
        """Create or check the table and its marker, and return the row check; the caller commits. Raise Usage, Refused."""
        rows = self._storable(connection, schema)
        markers, table_schema = self._marker_store(connection), self._table_schema(connection)
        marker = markers.read(pipeline, self._name)
        require_not_lost(marker, self._target, exists=table_schema is not None)
        if marker is None:
            self._require_unfilled(connection)
        if table_schema is None:
            if not self._create:
                raise no_table(self._target.table)
            self._create_table(connection, rows)
            table_schema = self._table_schema(connection)
            assert table_schema is not None, "the table was created"
        self._require_fit(connection, table_schema, rows)
        self._rehearse(connection, rows)
        prepare_marker(
            markers,
            pipeline=pipeline,
            sink=self._name,
            schema=schema,
            target=self._target,
            content=lambda: self._content(connection, schema),
        )
        return self._row_check(table_schema, rows)

    def _require_schema_accepted(self, connection: C, pipeline: PipelineName, schema: str) -> None:
        rows = self._storable(connection, schema)
        markers, table_schema = self._readable_marker_store(connection), self._table_schema(connection)
        if markers is not None:
            require_not_lost(markers.read(pipeline, self._name), self._target, exists=table_schema is not None)
        if table_schema is not None:
            self._require_fit(connection, table_schema, rows)
        elif not self._create:
            raise no_table(self._target.table)

    def _storable(self, connection: C, schema: str) -> "pa.Schema":
        rows = arrow_schema(schema)
        with settings_of(self._name):
            self._require_storable(connection, rows)
        return rows
