"""The markers in a database's own tables, read and written in an open transaction, and the SQL for that."""

# ruff: noqa: S608 - every name in a statement is quoted or our own, every value is bound

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from penstock.core.model import PipelineName, Position, Publication, SinkName
from penstock.sink.table.marker import LEDGER_ID, TableMarker, batch_values, marker_from, marker_values, place_of

REMEMBERED_BATCHES = 1000
"""How many of the last positions are remembered one by one. A zombie that is further behind is refused instead of recognised."""

MARKER_TABLE, BATCH_TABLE = "penstock_marker", "penstock_batch"
DBAPI_MARKER_TABLE = "penstock_dbapi_marker"
"""The marker table of the dbapi sink, which has tables of its own in every database."""
OWNERS_BY_DBAPI = "SELECT pipeline, sink, table_name, {schema} FROM {marker} ORDER BY pipeline, sink"

Q = TypeVar("Q")


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkerStatements(Generic[Q]):
    """All SQL about one database's markers; every statement takes its values by name.

    `read_marker`, `read_without_ledger_id` and `lock_marker` return the columns of `marker_from`, then `ledger_id`; the second
    returns NULL for it: a table of an older Penstock lacks that column. `lock_marker` reads the newest committed marker, which
    nobody else can lock or change until this transaction ends. `write_marker` replaces the old marker; where it changes no row
    because there is none, `make_marker` inserts the first one. `owners` returns pipeline and sink of the markers that name
    `table`; where a table has several names, those of every marker, with the name in it. `advance`, where the database can,
    does in one statement what `write_marker`, `write_batch` and `forget_batches` do; the position of `forget_batches` is its
    value `past`.
    """

    read_marker: Q
    read_without_ledger_id: Q
    lock_marker: Q
    write_marker: Q
    owners: Q
    newest_batch: Q
    read_batch: Q
    write_batch: Q
    forget_batches: Q
    make_marker: Q | None = None
    advance: Q | None = None


class DatabaseMarkerStore(ABC, Generic[Q]):
    """A `MarkerStore` over `MarkerStatements`.

    `locking`: reading a marker locks its row, after waiting for a transaction of another run that has locked it. `has_ledger_id`:
    the marker table has that column; `prepare` adds it, so only readers before that pass False. `split_name` returns
    schema and table of a name, where a table can be named with or without its schema or quotes.
    """

    def __init__(
        self,
        execute: Callable[[Q, Mapping[str, Any]], Any],
        statements: MarkerStatements[Q],
        *,
        locking: bool,
        has_ledger_id: bool = True,
        split_name: Callable[[str], tuple[str, str]] | None = None,
    ) -> None:
        self._execute, self._sql, self._locking, self._split_name = execute, statements, locking, split_name
        self._read = statements.read_marker if has_ledger_id else statements.read_without_ledger_id

    @abstractmethod
    def _marking(self) -> AbstractContextManager[None]:
        """Return the fault point around writing the marker."""

    def _fencing(self) -> AbstractContextManager[None]:
        """Return the fault point around locking the marker."""
        return nullcontext()

    def read(self, pipeline: PipelineName, sink: SinkName) -> TableMarker | None:
        which = {"pipeline": pipeline, "sink": sink}
        if not self._locking:
            row = self._execute(self._read, which).fetchone()
        else:
            with self._fencing():
                row = self._execute(self._sql.lock_marker, which).fetchone()
        return None if row is None else marker_from(row, pipeline, sink, ledger_id=row[-1])

    def write(self, marker: TableMarker) -> None:
        values = marker_values(marker)
        changed = self._execute(self._sql.write_marker, values)
        if self._sql.make_marker is not None and not changed.rowcount:
            self._execute(self._sql.make_marker, values)

    def owners(self, table: str) -> Sequence[tuple[PipelineName, SinkName]]:
        rows = self._execute(self._sql.owners, {"table": table}).fetchall()
        return [(PipelineName(pipeline), SinkName(sink)) for pipeline, sink, *name in rows if self._are_one(table, *name)]

    def _are_one(self, *names: str) -> bool:
        return self._split_name is None or len({*map(self._split_name, names)}) == 1

    def newest_batch(self, pipeline: PipelineName, sink: SinkName) -> Position | None:
        [position] = self._execute(self._sql.newest_batch, {"pipeline": pipeline, "sink": sink}).fetchone()
        return None if position is None else Position(position)

    def batch_at(self, publication: Publication) -> tuple[Any, ...] | None:
        found = self._execute(self._sql.read_batch, place_of(publication)).fetchone()
        return None if found is None else tuple(found)  # some drivers return rows as lists

    def advance(self, marker: TableMarker, publication: Publication) -> None:
        past, noted = publication.position - REMEMBERED_BATCHES, batch_values(publication)
        with self._marking():
            if self._sql.advance is not None:
                self._execute(self._sql.advance, {**marker_values(marker), **noted, "past": past})
                return
            self.write(marker)
            self._execute(self._sql.write_batch, noted)
            self._execute(self._sql.forget_batches, {**place_of(publication), "position": past})


# --- the SQL, which is the same in all databases but for names, bound values and the present time


_OWNER = ("pipeline", "sink")
_NEWEST = ("position", "generation", "query_id", "batch_id", "offsets", "schema")
_TOTALS = tuple(f"{kind}_{name}" for name in ("decided", "before", "after") for kind in ("rows", "digest"))
_READ = ("format_version", "table_name", "write", *_NEWEST, *_TOTALS)
MARKER_COLUMNS = (*_READ, LEDGER_ID)
"""Columns of a marker, in the order of `marker_from`. A table of an older Penstock lacks the last one."""
_WRITTEN = ("table_name", "write", "format_version", *_NEWEST, *_TOTALS)
_OF_BATCH = ("position", "generation", "query_id", "batch_id", "offsets", "rows", "digest")
_AT = "published_at"


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkerSql:
    """The statements about the tables `marker` and `batch`, named as in SQL.

    `now`: the expression of the present time; None if the column's default is that, or if there is no such column. `quoted`:
    how a column is named. `bound`: the expression of the value that is bound by a name.
    """

    marker: str
    batch: str
    now: str | None
    quoted: Callable[[str], str] = str
    bound: Callable[[str], str] = "%({})s".format

    @property
    def which(self) -> str:
        """The condition for one pipeline and sink."""
        return " AND ".join(map(self._is, _OWNER))

    @property
    def changes(self) -> str:
        """The assignments of an UPDATE."""
        now = [f"{self.quoted(name)} = {self.now}" for name in self._at]
        return ", ".join([*map(self._is, _WRITTEN), *now, self._is(LEDGER_ID)])

    @property
    def into_marker(self) -> str:
        """The beginning of an INSERT, before its values."""
        return f"INSERT INTO {self.marker} (\n{self.columns}\n)"

    @property
    def columns(self) -> str:
        """The columns of an INSERT."""
        return self._list(*_OWNER, *_WRITTEN, *self._at, LEDGER_ID)

    @property
    def values(self) -> str:
        """The values of an INSERT."""
        return ", ".join([*map(self.bound, (*_OWNER, *_WRITTEN)), *self._now, self.bound(LEDGER_ID)])

    @property
    def upsert(self) -> str:
        """Write the marker, over the row that is there, in databases that have ON CONFLICT."""
        changes = ", ".join(f"{name} = excluded.{name}" for name in (*_WRITTEN, _AT, LEDGER_ID))
        return f"{self.into_marker} VALUES ({self.values}) ON CONFLICT (pipeline, sink) DO UPDATE SET {changes}"

    def read(self, *, hint: str = "", ledger_id: str | None = None) -> str:
        """Read the columns of `marker_from`, then `ledger_id`."""
        columns = f"{self._list(*_READ)}, {ledger_id or self.quoted(LEDGER_ID)}"
        return f"SELECT {columns} FROM {self.marker} {hint}WHERE {self.which}"

    def write_batch(self) -> str:
        """Remember a batch."""
        values = ", ".join([*map(self.bound, (*_OWNER, *_OF_BATCH)), *self._now])
        return f"INSERT INTO {self.batch} (\n{self._list(*_OWNER, *_OF_BATCH, *self._at)}\n) VALUES (\n{values}\n)"

    def forget_batches(self, past: str = "position") -> str:
        """Forget the batches up to the position that is bound by the name `past`."""
        return f"DELETE FROM {self.batch} WHERE {self.which} AND {self.quoted('position')} <= {self.bound(past)}"

    def statements(
        self,
        *,
        lock_marker: str,
        write_marker: str,
        make_marker: str | None = None,
        owners: str | None = None,
        advance: str | None = None,
        no_ledger_id: str = "NULL",
    ) -> MarkerStatements[str]:
        """Return all statements, of which some are the database's own. `no_ledger_id`: NULL of the type of that column."""
        owned, found = self._list(*_OWNER), self._list("query_id", "batch_id", "offsets", "rows", "digest")
        return MarkerStatements(
            read_marker=self.read(),
            read_without_ledger_id=self.read(ledger_id=no_ledger_id),
            lock_marker=lock_marker,
            write_marker=write_marker,
            make_marker=make_marker,
            owners=owners or f"SELECT {owned}, {self.quoted('table_name')} FROM {self.marker} ORDER BY {owned}",
            newest_batch=f"SELECT MAX({self.quoted('position')}) FROM {self.batch} WHERE {self.which}",
            read_batch=f"SELECT {found} FROM {self.batch} WHERE {self.which} AND {self._is('position')}",
            write_batch=self.write_batch(),
            forget_batches=self.forget_batches(),
            advance=advance,
        )

    @property
    def _at(self) -> tuple[str, ...]:
        return () if self.now is None else (_AT,)

    @property
    def _now(self) -> tuple[str, ...]:
        return () if self.now is None else (self.now,)

    def _is(self, name: str) -> str:
        return f"{self.quoted(name)} = {self.bound(name)}"

    def _list(self, *names: str) -> str:
        return ", ".join(map(self.quoted, names))
