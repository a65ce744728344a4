"""A sink into many tables of one database: rows of all of them, and every marker, in one transaction."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar, cast

import pyarrow as pa

from penstock.core.high_water_mark import HighWaterMark
from penstock.core.model import (
    ONLY_ACCOUNT,
    AccountName,
    PipelineName,
    Publication,
    Published,
    RowDigest,
    SinkReport,
    Totals,
    Waiting,
)
from penstock.core.table_names import TableNames
from penstock.core.taken_back import TakenBack
from penstock.errors import Failed
from penstock.protocols import SinkDecisions
from penstock.sink.many.shares import child_name, share_of, tables_in, tables_of, taken_of, verified
from penstock.sink.many.stager import FAIL, ManyStager, sharing
from penstock.sink.many.table_sinks import TableSinks
from penstock.sink.spool.writer import RowCheck
from penstock.sink.table.batch_column import lose_batches
from penstock.sink.table.dialect import C, T
from penstock.sink.table.marker import MarkerStore, TableMarker
from penstock.sink.table.preparation import require_never_marked
from penstock.sink.table.publication import Loaded, apply, decided_target, other_table
from penstock.sink.table.sql_sink import SqlSink, TableRowsThere
from penstock.sink.table.target import Target

K = TypeVar("K", bound=SqlSink[Any, Any])


class ManyTables(SqlSink[C, T]):
    """The part of a sink that fills a table for each name that its rows have. `many_tables` makes such a sink of a dialect's.

    The sink's own marker, under the template's name, says which batches all tables show; each table has one of its own, which
    counts its rows. They move together. Each table is filled by a sink of the dialect, over this one's connection and spool.
    """

    _children: TableSinks[SqlSink[C, T]]
    _unrouted = FAIL
    _puts_invalid_aside = False

    def _begin_many(
        self, names: TableNames, make: Callable[[AccountName], SqlSink[C, T]], *, unrouted: str, puts_invalid_aside: bool
    ) -> None:
        """Called once, by `many_tables`."""
        self._children = TableSinks(names, lambda table: self._sharing(make(table)))
        self._unrouted, self._puts_invalid_aside = unrouted, puts_invalid_aside

    # --- as `OpensTables`

    def use_tables(self, tables: Collection[AccountName]) -> None:
        self._children.use(tables)

    def open_tables(self, tables: Sequence[AccountName]) -> None:
        if self._prepared_for is None:
            raise Failed(f"Sink {self._name!r} was not prepared with a schema.", remedy="Call prepare() first.")
        pipeline, schema = self._prepared_for
        self._children.open(tables, lambda child: child._prepare_target(pipeline, schema))

    # --- as `Sink`

    @property
    def route_sql(self) -> str:  # type: ignore[override]
        return self._children.names.route_sql

    @property
    def accounts(self) -> Sequence[AccountName]:  # type: ignore[override]
        """The sink as a whole, whose marker covers all tables, and every table that is open."""
        return [ONLY_ACCOUNT, *sorted(self._children.opened)]

    def use_row_digest(self, row_digest: RowDigest) -> None:
        super().use_row_digest(row_digest)
        for child in self._children.every():
            child.use_row_digest(row_digest)

    def describe(self) -> Mapping[str, str]:
        return {
            **super().describe(),
            "tables": self._children.described("all of them show it at once", unrouted=self._unrouted),
        }

    def prepare(self, *, pipeline: PipelineName, schema: str | None) -> None:
        super().prepare(pipeline=pipeline, schema=schema)
        if schema is not None:
            for child in self._children.opened.values():
                child._prepare_target(pipeline, schema)

    def stager(self) -> ManyStager:  # type: ignore[override]
        self._begin_staging()
        self._target = replace(self._target, has_staged=True)
        children = self._children.opened
        opened = {table: sharing(child.stager(), table, tables=len(children)) for table, child in children.items()}
        return ManyStager(
            sink=self._name,
            names=self._children.names,
            opened=opened,
            unrouted=self._unrouted,
            puts_invalid_aside=self._puts_invalid_aside,
        )

    def verify(self, decisions: SinkDecisions) -> SinkReport:
        """Compare each table with its own marker, and that with the ledger."""
        return verified(self._children.opened, decisions)

    def high_water_mark(self, account: AccountName, *, pipeline: PipelineName) -> HighWaterMark | None:
        """Return what the marker of a table says, or that of all of them for the only account. Raises as the dialect's."""
        name = self._name if account == ONLY_ACCOUNT else child_name(self._name, account)
        with self._database.reader() as connection:
            markers = self._readable_marker_store(connection)
            marker = None if markers is None else markers.read(pipeline, name)
        return None if marker is None else marker.high_water_mark

    def waiting(self, account: AccountName, *, pipeline: PipelineName) -> "Any":
        """Yield what is in the spool, which all tables share, for the sink as a whole."""
        nothing: tuple[Waiting, ...] = ()
        return super().waiting(account, pipeline=pipeline) if account == ONLY_ACCOUNT else iter(nothing)

    # --- as `DatabaseSink`

    def _existing_table(self, connection: C) -> tuple[str, bool] | None:
        there = [child for child in self._children.known().values() if child._table_schema(connection) is not None]
        return f"{self._children.counted(len(there), creates=self._create)};", True

    def _prepare_table(self, connection: C, pipeline: PipelineName, schema: str) -> RowCheck:
        self._storable(connection, schema)
        with self._points.prepare(), self._one_at_a_time(connection):
            self._open_preparation(connection)
            self._begin_marking(connection)
            self._prepare_marker(self._marker_store(connection), pipeline, schema)
            self._close_preparation(connection)
        return _require_nothing

    def _prepare_marker(self, markers: MarkerStore, pipeline: PipelineName, schema: str) -> None:
        """Create the marker of all tables, or check that it is of this template. Raises Refused, LedgerMismatch."""
        marker = markers.read(pipeline, self._name)
        if marker is None:
            require_never_marked(markers, pipeline, self._name, self._target.table)
            fresh = TableMarker(
                pipeline=pipeline, sink=self._name, table_name=self._target.table, write=self._target.write, schema=schema
            )
            markers.write(fresh)
        elif not self._target.is_table(marker.table_name):
            raise other_table(marker, self._target.table)

    def _require_schema_accepted(self, connection: C, pipeline: PipelineName, schema: str) -> None:
        self._storable(connection, schema)
        self._require_place(connection)
        markers = self._readable_marker_store(connection)
        marker = None if markers is None else markers.read(pipeline, self._name)
        if marker is not None and not self._target.is_table(marker.table_name):
            raise other_table(marker, self._target.table)
        for child in self._children.known().values():
            if child._table_schema(connection) is not None:
                child._require_schema_accepted(connection, pipeline, schema)

    # --- publishing

    def _apply(self, connection: C, publication: Publication) -> Published:
        """Publish every table's share, unless the marker of all tables shows the publication."""
        target = decided_target(publication, self._target)
        load = lambda: self._load(connection, publication, target)  # noqa: E731 - as in the class above
        shown = apply(self._marker_store(connection), publication, target, since=self._committed, load=load)
        return self._note_applied(shown)

    def _load(self, connection: C, publication: Publication, _: Target) -> Loaded:
        """Return as if no row were displaced: the marker of all tables counts what was decided, those of the tables the rest."""
        shares = {table: share_of(publication, table) for table in tables_of(publication)}
        shown = [self._children.of(table)._apply(connection, share) for table, share in shares.items()]
        return Loaded(rows=sum(each.totals.rows for each in shown), displaced=Totals())

    def _note(self, publication: Publication) -> None:
        super()._note(publication)
        for table in tables_of(publication):
            self._children.of(table)._note(share_of(publication, table))

    # --- rewinding

    def require_taken_back_exactly(self, taken: TakenBack) -> None:
        for table in tables_in(taken):
            self._children.of(table).require_taken_back_exactly(taken_of(taken, table))

    def _lose(self, connection: C, taken: TakenBack) -> None:
        """Take the rows out of every table, in the transaction of the marker that covers them."""
        markers = self._marker_store(connection)
        markers.read(taken.pipeline, self._name)  # locks it, as a publication does first
        for table in tables_in(taken):
            child, own = self._children.of(table), taken_of(taken, table)
            lose_batches(markers, own, TableRowsThere(self._tables, connection, own, child._target), child._target)
        lose_batches(markers, taken, _Counted(taken), self._target)

    # --- steps

    def _sharing(self, child: SqlSink[C, T]) -> SqlSink[C, T]:
        """Return the sink of one table, over this one's connection and spool."""
        child._database, child._lock, child._spool = self._database, self._lock, self._spool
        child.use_row_digest(self._target.row_digest)
        return child


def many_tables(kind: type[K], names: TableNames, *, prefix: str, unrouted: str, puts_invalid_aside: bool, **settings: Any) -> K:
    """Return a sink of the dialect `kind` into tables by `names`. `settings` are its arguments, `prefix` what precedes a name."""
    name = settings["name"]

    def make(table: AccountName) -> K:
        return kind(**{**settings, "name": child_name(name, table), "table": f"{prefix}{table}"})

    made: Any = type(f"Many{kind.__name__}", (ManyTables, kind), {})(**{**settings, "table": f"{prefix}{names.template}"})
    made._begin_many(names, make, unrouted=unrouted, puts_invalid_aside=puts_invalid_aside)
    return cast(K, made)


class _Counted:
    """The `BatchRowsThere` of all tables together, whose rows are gone by then."""

    def __init__(self, taken: TakenBack) -> None:
        self._taken = taken

    def count(self) -> int:
        return self._taken.totals.rows

    def totals(self, _: "pa.Schema") -> Totals:
        return Totals(rows=self._taken.totals.rows, digest=self._taken.totals.digest)

    def delete(self) -> None:
        return


def _require_nothing(_: "pa.RecordBatch") -> None:
    """Check no rows: each table has a check of its own."""
