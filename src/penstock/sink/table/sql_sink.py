"""The engine of sinks whose database has a catalog: it prepares the table, and writes rows and marker in one transaction."""

import json
from abc import abstractmethod
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Generic

import pyarrow as pa

from penstock.core.condition_value import bound_condition
from penstock.core.faults import FaultPoint
from penstock.core.model import PipelineName, Publication, Totals
from penstock.core.taken_back import TakenBack
from penstock.errors import Failed, PenstockError, Refused
from penstock.sink.spool.writer import RowCheck
from penstock.sink.table.batch_column import (
    BatchRows,
    has_rows,
    lose_batches,
    numbered,
    require_told_apart,
    totals_between,
    with_batch_column,
)
from penstock.sink.table.columns import CatalogTable, as_code
from penstock.sink.table.compared_load import load_compared, table_columns
from penstock.sink.table.database_sink import DatabaseSink, TransactionalSink
from penstock.sink.table.dialect import C, ErrorCodes, FaultPoints, Rows, SqlTables, T, UserTables
from penstock.sink.table.marker import LEDGER_ID, MarkerStore, TableMarker
from penstock.sink.table.marker_store import MARKER_TABLE, DatabaseMarkerStore, MarkerStatements
from penstock.sink.table.preparation import (
    ledger_id_missing,
    prepare_marker,
    require_continuing,
    require_not_lost,
    require_same_types,
    settings_of,
)
from penstock.sink.table.publication import Loaded, totals_of
from penstock.sink.table.sink import TableSinkArguments
from penstock.sink.table.target import MERGE, NotStoredError, Target, may_add, no_table, table_gone, widened
from penstock.spark.schema import arrow_schema
from penstock.sql.session import SqlDatabase

if TYPE_CHECKING:
    from typing_extensions import Unpack


ADD_COLUMNS = FaultPoint("table.add_columns", "Columns that the rows have and the table lacks are added, narrow ones widened.")
TAKE_BACK = FaultPoint("table.take_back", "A table loses the rows of batches that were taken back, in an open transaction.")


class CatalogSink(DatabaseSink[C], Generic[C, T]):
    """A `DatabaseSink` that reads the table's schema from a catalog. What its database does its own way is in `_tables`."""

    _tables: ClassVar[UserTables[Any, Any]]
    _points: ClassVar[FaultPoints]

    def __init__(self, **filling: "Unpack[TableSinkArguments]") -> None:
        super().__init__(**filling, case_counts=self._tables.case_counts)
        self._schema, self._table = self._tables.split_name(self._target.table)

    # --- steps of preparing that a database can do in another way, in their order

    def _storable(self, connection: C, schema: str) -> "pa.Schema":  # noqa: ARG002 - for those that ask the database
        """Return the rows' Arrow schema. Raise Usage for rows or settings that no table could satisfy."""
        with settings_of(self._name):
            rows = table_columns(arrow_schema(schema), self._target)
            if self._target.update_when is not None:
                bound_condition(self._target.update_when, rows)
            self._tables.require_storable(rows, self._target)
        return rows

    def _one_at_a_time(self, connection: C) -> AbstractContextManager[None]:  # noqa: ARG002 - for those that lock
        """Keep other runs from creating tables meanwhile, where no transaction does."""
        return nullcontext()

    def _dry_run_staging(self, connection: C, rows: "pa.Schema") -> None:
        """Stage a row as publishing does, before anything is created, and leave nothing behind. Raise Refused."""

    @abstractmethod
    def _open_preparation(self, connection: C) -> None:
        """Create Penstock's own tables where they are missing, and begin the transaction."""

    @abstractmethod
    def _marker_store(self, connection: C) -> MarkerStore:
        """Return the markers; reading one excludes other publishers, where the database can."""

    def _markers_before_creating(self, connection: C, markers: MarkerStore) -> MarkerStore:  # noqa: ARG002 - see MySQL's
        """Return the store that is read before the table is created: `markers`, unless CREATE TABLE would release their locks."""
        return markers

    def _require_unfilled(self, connection: C, table_schema: T | None) -> None:
        """Raise Refused if a sink that has its markers elsewhere fills the table, or a part of it."""

    def _dry_run(self, connection: C, rows: "pa.Schema") -> None:
        """Run the statements of a publication, or the user's own SQL, over no rows. Raise Refused."""

    def _begin_marking(self, connection: C) -> None:
        """Begin the marker's transaction, where CREATE TABLE would have ended one begun earlier."""

    def _close_preparation(self, connection: C) -> None:
        """Commit, where the database has transactions."""

    def _require_place(self, connection: C) -> None:
        """Raise Refused unless Penstock's own tables are there as they must be, or can be created."""

    def _dry_run_unprepared(self, connection: C, table_schema: T | None, rows: "pa.Schema") -> None:
        """Try what publishing will do, without preparing, and leave nothing behind. Raise Refused."""

    # --- as `DatabaseSink`

    def _existing_table(self, connection: C) -> tuple[str, bool] | None:
        if (table_schema := self._table_schema(connection)) is None:
            return None
        what = f"{table_schema.kind} {self._target.table} with {len(table_schema.columns)} columns"
        return what, table_schema.kind.endswith("table")

    def _prepare_table(self, connection: C, pipeline: PipelineName, schema: str) -> RowCheck:
        rows = with_batch_column(self._storable(connection, schema), self._target)
        with self._points.prepare(), self._one_at_a_time(connection):
            self._dry_run_staging(connection, rows)
            self._open_preparation(connection)
            markers = self._marker_store(connection)
            # before the catalog: it locks, and in some databases the first read fixes what the transaction sees
            marker = self._markers_before_creating(connection, markers).read(pipeline, self._name)
            table_schema = self._table_schema(connection)
            require_not_lost(marker, self._target, exists=table_schema is not None)
            if marker is None:
                self._require_unfilled(connection, table_schema)
            table_schema = (
                self._grown(connection, table_schema, rows, marker) if table_schema else self._created(connection, rows)
            )
            self._require_fit(connection, table_schema, rows)
            self._dry_run(connection, rows)
            self._begin_marking(connection)
            content = partial(self._content, connection)
            prepare_marker(markers, pipeline=pipeline, sink=self._name, schema=schema, target=self._target, content=content)
            self._close_preparation(connection)
        return self._tables.row_check(connection, table_schema, self._name, self._target)

    def _require_schema_accepted(self, connection: C, pipeline: PipelineName, schema: str) -> None:
        rows = with_batch_column(self._storable(connection, schema), self._target)
        self._require_place(connection)
        markers = self._readable_marker_store(connection)
        marker = None if markers is None else markers.read(pipeline, self._name)
        table_schema = self._table_schema(connection)  # after the marker: a first start may create both meanwhile
        require_not_lost(marker, self._target, exists=table_schema is not None)
        if marker is None:
            self._require_unfilled(connection, table_schema)
        if table_schema is not None:
            self._require_fit(connection, table_schema, self._growth(connection, table_schema, rows, marker)[0])
        elif not self._create:
            raise no_table(self._target.table)
        if markers is not None:
            content = partial(self._content_there, connection, table_schema)
            require_continuing(
                marker, markers, pipeline=pipeline, sink=self._name, schema=schema, target=self._target, content=content
            )
        self._dry_run_unprepared(connection, table_schema, rows)

    def _shown(self, connection: C, marker: TableMarker) -> Totals:
        table_schema = self._table_schema(connection)
        if table_schema is None:
            raise NotStoredError("it is gone")
        ours = None if marker.write == MERGE or marker.schema is None else arrow_schema(marker.schema)
        names = () if ours is None else table_columns(ours, self._target).names
        if lost := [name for name in names if table_schema.fold(name) not in table_schema.by_name]:
            raise NotStoredError(f"it has no column {', '.join(map(repr, lost))} any more")
        return self._shown_rows(connection, marker)

    def _content_there(self, connection: C, table_schema: T | None, schema: str) -> Totals:
        """Return what the table holds in those columns of `schema` that it has: one that a start adds is NULL in each row."""
        if table_schema is None:
            return Totals()
        there, fields = table_schema.by_name, json.loads(schema)["fields"]
        kept = [field for field in fields if table_schema.fold(field["name"]) in there]
        return self._content(connection, json.dumps({"type": "struct", "fields": kept}))

    def _content(self, connection: C, schema: str) -> Totals:
        rows = table_columns(arrow_schema(schema), self._target)
        return totals_of(self._tables.read(connection, rows, self._target), self._target.row_digest)

    # --- steps

    def _table_schema(self, connection: C, table: str | None = None) -> T | None:
        """Return the user's table, or another one in its schema, as the catalog declares it. None if there is none."""
        found: T | None = self._tables.table_schema_of(connection, self._schema, table or self._table)
        return found

    def _created(self, connection: C, rows: "pa.Schema") -> T:
        if not self._create:
            raise no_table(self._target.table)
        self._tables.create_table(connection, rows, self._target)
        table_schema = self._table_schema(connection)
        assert table_schema is not None, "it was created"
        return table_schema

    def _grown(self, connection: C, table_schema: T, rows: "pa.Schema", marker: TableMarker | None) -> T:
        """Alter the table as `_growth` says, if all else fits. Return its new schema."""
        there, statements = self._growth(connection, table_schema, rows, marker)
        if not statements:
            return table_schema
        self._require_fit(connection, table_schema, there)
        with ADD_COLUMNS.around():
            for statement in statements:
                self._alter(connection, statement)
        return self._table_schema(connection) or table_schema

    def _alter(self, connection: C, statement: str) -> None:
        connection.execute(statement)

    def _growth(
        self, connection: C, table_schema: T, rows: "pa.Schema", marker: TableMarker | None
    ) -> tuple["pa.Schema", tuple[str, ...]]:
        """Return the part of the rows' schema that fits already, and the statements that add and widen columns for the rest."""
        filled = _filled(marker, self._target)
        if widened(filled, rows) is not filled:
            require_same_types(marker, rows, self._target)  # before anything is altered
        if self._schema_changes == "fail":
            return rows, ()
        found = self._tables.missing_columns(connection, table_schema, rows, self._target)
        added = found if may_add(found, rows.names, self._target.key) else {}
        old = self._tables.types_there(connection, table_schema, rows, filled) if self._target.widens else rows
        wider = self._tables.wider_columns(connection, table_schema, rows, old, self._target)
        self._tables.require_alterable(connection, table_schema, wider, self._target)
        there = [old.field(field.name) if field.name in wider else field for field in rows if field.name not in added]
        return pa.schema(there), (*added.values(), *wider.values())

    def _require_fit(self, connection: C, table_schema: T, rows: "pa.Schema") -> None:
        self._tables.require_fit(connection, table_schema, rows, self._target)
        self._tables.require_allowed(connection, table_schema, rows, self._target)


def _filled(marker: TableMarker | None, target: Target) -> "pa.Schema":
    """Return the schema of the rows that were published, an empty one if there are none."""
    if marker is None or marker.schema is None or not target.is_table(marker.table_name):
        return pa.schema([])
    return arrow_schema(marker.schema)


class SqlSink(CatalogSink[C, T], TransactionalSink[C]):
    """The common part of sinks into one table of a SQL database."""

    _database: SqlDatabase[C]
    _tables: ClassVar[SqlTables[Any, Any, Any]]
    _codes: ClassVar[ErrorCodes] = ErrorCodes()
    _own_statements: ClassVar[type[MarkerStatements]]

    def __init__(self, **filling: "Unpack[TableSinkArguments]") -> None:
        super().__init__(**filling)
        self._own = self._own_statements(self._schema)

    @staticmethod
    @abstractmethod
    def _write(connection: C, batches: Rows, rows: "pa.Schema", table_schema: T, target: Target, /) -> Loaded:
        """Write decided rows in their order. Of several rows with one key, `upsert` keeps the last, `insert_if_absent` the first.

        If rows have the column of `core.deletes`, `upsert` deletes the row of a key if its last one deletes. Raise Refused for a
        value that the table, altered since, would change, and Conflict where another session writes rows of the same keys.
        """

    @staticmethod
    def _read_there(connection: C, keys: "pa.Table", rows: "pa.Schema", table_schema: T, target: Target, /) -> Rows:
        """Yield the table's rows under `keys`, as `compared_load.ReadsThere` says. Only where the sink `_compares`."""
        raise NotImplementedError

    # --- as `CatalogSink`

    def _open_preparation(self, connection: C) -> None:
        """Create Penstock's missing tables, each in its own transaction since an error ends that; then begin the transaction."""
        self._require_place(connection)
        for table, statement in self._own.creates.items():
            table_schema = self._table_schema(connection, table)
            if table_schema is not None:
                self._require_own_table(table_schema, table)
            else:
                try:
                    connection.execute(statement)
                except self._database.errors as cause:
                    if self._codes.code_of(cause) not in self._codes.made:
                        raise
        self._database.begin(connection)

    def _marker_store(self, connection: C, *, locking: bool = True, has_ledger_id: bool = True) -> DatabaseMarkerStore:
        """Return the markers. `locking`: reading one locks it. `has_ledger_id`: their table has the column `ledger_id`."""
        return DatabaseMarkerStore(
            connection.execute,
            self._own,
            locking=locking,
            has_ledger_id=has_ledger_id,
            split_name=self._tables.folded_name,
            fencing=self._points.fence,
            marking=self._points.mark,
        )

    def _close_preparation(self, connection: C) -> None:
        self._database.commit(connection)

    # --- as `DatabaseSink`

    def _add_ledger_id(self, connection: C) -> None:
        if not self._lacks_ledger_id(connection):
            return
        statement, codes = self._own.add_ledger_id, self._codes
        try:
            connection.execute(statement)
        except self._database.errors as cause:
            if codes.code_of(cause) in codes.forbidden:
                raise ledger_id_missing(statement, codes.reason_of(cause)) from cause
            if codes.code_of(cause) not in codes.made:
                raise

    def _readable_marker_store(self, connection: C) -> DatabaseMarkerStore | None:
        table_schema = self._table_schema(connection, MARKER_TABLE)
        if table_schema is None:
            return None
        return self._marker_store(connection, locking=False, has_ledger_id=has_ledger_id(table_schema))

    # --- as `TransactionalSink`

    def _begin(self, connection: C) -> None:
        with self._points.begin():
            self._database.begin(connection)

    def _load(self, connection: C, publication: Publication, target: Target) -> Loaded:
        """Check the table again, then write the rows."""
        given = arrow_schema(publication.schema)
        rows = with_batch_column(table_columns(given, target), target)
        table_schema = self._held(connection, rows, target)
        with closing(self._spool.read(publication.staged, pipeline=publication.pipeline)) as batches:
            if target.compares:
                return load_compared(
                    list(batches),
                    given,
                    publication,
                    target,
                    read=lambda keys, of: self._read_there(connection, keys, rows, table_schema, of),
                    write=lambda changed, of: self._write(connection, changed, rows, table_schema, of),
                )
            return self._write(connection, numbered(batches, publication.position, target), rows, table_schema, target)

    def _held_rows(self, connection: C, rows: "pa.Schema", target: Target) -> Rows:
        self._held(connection, rows, target)
        return self._tables.read(connection, rows, target)

    def _held(self, connection: C, rows: "pa.Schema", target: Target) -> T:
        """Return the table's schema, which nobody can alter until the transaction ends, and which takes decided rows."""
        table_schema: T | None = self._tables.hold(connection, rows, target)
        if table_schema is None:
            raise table_gone(target.table)
        self._tables.require_fit(connection, table_schema, rows, target, decided=True)
        return table_schema

    def _commit(self, connection: C) -> None:
        """Commit. After OutcomeUnknown, the next try locks and reads the marker on a new connection."""
        with self._database.unknown_if_cut(f"table {self._target.table!r}", read="the marker"), self._points.commit():
            self._database.commit(connection)

    # --- rewinding

    def require_taken_back_exactly(self, taken: TakenBack) -> None:
        if not has_rows(taken):
            return
        with self._database.reader() as connection:
            require_told_apart(
                taken,
                self._target,
                self._table_schema(connection),
                TableRowsThere(self._tables, connection, taken, self._target).count,
            )

    def take_back(self, taken: TakenBack) -> None:
        if not has_rows(taken):
            return
        with self._lock, self._database.dropping_on_error():
            connection = self._database.writable()
            with self._database.translate_errors(), TAKE_BACK.around():
                self._begin(connection)
                self._lose(connection, taken)
            self._commit(connection)

    def _lose(self, connection: C, taken: TakenBack) -> None:
        """Take the rows out of the table, and count them out of its marker."""
        there = TableRowsThere(self._tables, connection, taken, self._target)
        lose_batches(self._marker_store(connection), taken, there, self._target)

    # --- steps

    def _require_own_table(self, table_schema: T, table: str) -> None:
        """Raise Refused for an existing table of Penstock's own that would lose or hide what is written into it."""

    def _alter(self, connection: C, statement: str) -> None:
        """Run `statement`. Raise Refused where role or table do not let it, the driver's error where another run was faster."""
        try:
            super()._alter(connection, statement)
        except self._database.errors as cause:
            if self._codes.code_of(cause) in self._codes.made:
                raise
            raise self._not_altered(cause, statement) from cause

    def _not_altered(self, cause: Exception, statement: str) -> PenstockError:
        lacks = f"Table {self._target.table!r} lacks a column of the rows, or is too narrow, and"
        if self._codes.code_of(cause) in self._codes.forbidden:
            return Refused(
                f"{lacks} the role cannot alter it: {self._codes.reason_of(cause)}.",
                remedy=f"Have the table's owner run {as_code(statement)}, and start again.",
            )
        try:
            with self._database.translate_errors(Failed):
                raise cause
        except Failed as error:
            return Refused(
                f"{lacks} {as_code(statement)} fails: {error.message}",
                remedy="Take away what depends on the column, run the statement and put it back, then start again.",
            )
        except PenstockError as error:
            return error

    def _lacks_ledger_id(self, connection: C) -> bool:
        """Return whether an older Penstock created the table of markers, without the column `ledger_id`."""
        table_schema = self._table_schema(connection, MARKER_TABLE)
        return table_schema is not None and not has_ledger_id(table_schema)


def has_ledger_id(table_schema: CatalogTable) -> bool:
    """Return whether this table of markers has the column `ledger_id`, which an older Penstock did not create."""
    return any(column.name.lower() == LEDGER_ID for column in table_schema.columns)


class TableRowsThere:
    """The `BatchRowsThere` of a table with a catalog."""

    def __init__(self, tables: Any, connection: Any, taken: TakenBack, target: Target) -> None:
        self._tables, self._connection, self._taken, self._target = tables, connection, taken, target
        self._statements: BatchRows = tables.statements_of(pa.schema([]), replace(target, key=()))
        self._range: dict[str, Any] = {"column": target.batch_column, "after": taken.after, "before": taken.position}

    def count(self) -> int:
        [rows] = self._connection.execute(self._statements.count_batches(**self._range)).fetchone()
        return int(rows)

    def totals(self, rows: "pa.Schema") -> Totals:
        batches = self._tables.read(self._connection, with_batch_column(rows, self._target), self._target)
        return totals_between(batches, self._taken, self._target)

    def delete(self) -> None:
        self._connection.execute(self._statements.delete_batches(**self._range))
