"""The markers in a database's own tables, read and written in an open transaction, and the SQL for that."""

# ruff: noqa: S608 - every name in a statement is quoted or our own, every value is bound

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

from penstock.core.model import PipelineName, Position, Publication, SinkName
from penstock.sink.table.marker import LEDGER_ID, TableMarker, batch_values, marker_from, marker_values, place_of

Guard: TypeAlias = Callable[[], AbstractContextManager[None]]

REMEMBERED_BATCHES = 1000
"""How many of the last positions are remembered one by one. A zombie that is further behind is refused instead of recognised."""

MARKER_TABLE, BATCH_TABLE = "penstock_marker", "penstock_batch"
DBAPI_MARKER_TABLE = "penstock_dbapi_marker"
"""The marker table of the dbapi sink, which has tables of its own in every database."""
OWNERS_BY_DBAPI = "SELECT pipeline, sink, table_name, {schema} FROM {marker} ORDER BY pipeline, sink"

_OWNER = ("pipeline", "sink")
_NEWEST = ("position", "generation", "query_id", "batch_id", "offsets", "schema")
_TOTALS = tuple(f"{kind}_{name}" for name in ("decided", "before", "after") for kind in ("rows", "digest"))
_READ = ("format_version", "table_name", "write", *_NEWEST, *_TOTALS)
MARKER_COLUMNS = (*_READ, LEDGER_ID)
"""Columns of a marker, in the order of `marker_from`. A table of an older Penstock lacks the last one."""
_WRITTEN = ("table_name", "write", "format_version", *_NEWEST, *_TOTALS)
_OF_BATCH = ("position", "generation", "query_id", "batch_id", "offsets", "rows", "digest")
_AT = "published_at"
_OPTIONAL = frozenset({*_NEWEST[1:], LEDGER_ID})
"""The columns that are NULL in a marker without a batch."""
_NUMBERS = frozenset({"position", "generation", "batch_id"})


@dataclass(frozen=True, slots=True)
class MarkerStatements(ABC):
    """The SQL about Penstock's own tables, of markers and of batches, in `schema`; statements take their values by name.

    - `creating`, `null`, `keyed`, `options`: how a table is created, and whether with a primary key.
    - `text`, `number`: the types of its columns; `types` has the exceptions, by column: all digests under `digest`.
    - `adding`: how a column is added.
    - `now`: the expression of the present time; None if the column's default is that, or if there is no such column.
    - `upserts`: whether the database has ON CONFLICT.
    - `lock_hint`, `for_update`: what locks the row in `lock_marker`, after the table's name and at the end of the statement.
    - `no_ledger_id`: what is read in place of a missing column `ledger_id`: NULL of its type.
    - `percent`: a literal % in a statement with values, which some drivers want doubled.
    """

    schema: str = ""
    creating: ClassVar[str] = "CREATE TABLE IF NOT EXISTS"
    null: ClassVar[str] = ""
    keyed: ClassVar[bool] = True
    options: ClassVar[str] = ""
    text: ClassVar[str]
    number: ClassVar[str] = "bigint"
    types: ClassVar[Mapping[str, str]]
    adding: ClassVar[str] = "ADD COLUMN"
    now: ClassVar[str | None] = None
    upserts: ClassVar[bool] = False
    lock_hint: ClassVar[str] = ""
    for_update: ClassVar[str] = ""
    no_ledger_id: ClassVar[str] = "NULL"
    percent: ClassVar[str] = "%"

    # --- what databases differ in

    @abstractmethod
    def named(self, table: str) -> str:
        """Return the name in SQL of one of Penstock's own tables."""

    def quoted(self, name: str) -> str:
        """Return the name in SQL of a column."""
        return name

    def bound(self, name: str) -> str:
        """Return the expression of the value that is bound by a name."""
        return f"%({name})s"

    @property
    def fence(self) -> tuple[str, ...]:
        """Statements that keep other publishers out until the end of the transaction, where reading a marker cannot lock it."""
        return ()

    @property
    def advance(self) -> str | None:
        """Do in one statement what `write_marker`, `write_batch` and `forget_batches` do, with that position bound as `past`."""
        return None

    # --- the tables

    @property
    def creates(self) -> Mapping[str, Any]:
        """Create each table, by name."""
        marker, batch = (*_OWNER, *_WRITTEN, _AT, LEDGER_ID), (*_OWNER, *_OF_BATCH, _AT)
        return {
            MARKER_TABLE: self._create(MARKER_TABLE, marker, key=_OWNER, optional=_OPTIONAL),
            BATCH_TABLE: self._create(BATCH_TABLE, batch, key=(*_OWNER, "position"), optional=frozenset()),
        }

    @property
    def add_ledger_id(self) -> str:
        """Add the column that an older Penstock did not create."""
        return f"ALTER TABLE {self.named(MARKER_TABLE)} {self.adding} {self._defined(LEDGER_ID, optional=True)}"

    # --- markers

    def read(self, *, hint: str = "", ledger_id: str | None = None) -> str:
        """Read the columns of `marker_from`, then `ledger_id`."""
        columns = f"{self._list(*_READ)}, {ledger_id or self.quoted(LEDGER_ID)}"
        return f"SELECT {columns} FROM {self.marker} {hint}WHERE {self.which}"

    @property
    def read_without_ledger_id(self) -> str:
        """Read a marker in the table of an older Penstock, which lacks that column: NULL is read in its place."""
        return self.read(ledger_id=self.no_ledger_id)

    @property
    def lock_marker(self) -> str:
        """Read the newest committed marker, which nobody else can lock or change until this transaction ends."""
        return self.read(hint=self.lock_hint) + self.for_update

    @property
    def write_marker(self) -> str:
        """Write the marker. Where there is `make_marker` for the first one, this changes no row unless a marker exists."""
        if self.upserts:
            changes = ", ".join(f"{name} = excluded.{name}" for name in (*_WRITTEN, _AT, LEDGER_ID))
            return f"{self._into_marker()} VALUES ({self._values}) ON CONFLICT (pipeline, sink) DO UPDATE SET {changes}"
        now = [f"{self.quoted(name)} = {self.now}" for name in self._at]
        changes = ", ".join([*map(self._is, _WRITTEN), *now, self._is(LEDGER_ID)])
        return f"UPDATE {self.marker} SET {changes} WHERE {self.which}"

    @property
    def make_marker(self) -> str | None:
        """Insert the first marker, where `write_marker` does not."""
        return None if self.upserts else f"{self._into_marker()} VALUES ({self._values})"

    @property
    def owners(self) -> str:
        """Read pipeline and sink of the markers that name `table`; or pipeline, sink and table name of every marker."""
        return f"SELECT {self._list(*_OWNER, 'table_name')} FROM {self.marker} ORDER BY {self._list(*_OWNER)}"

    # --- batches

    @property
    def newest_batch(self) -> str:
        """Read the newest position of a batch."""
        return f"SELECT MAX({self.quoted('position')}) FROM {self.batch} WHERE {self.which}"

    @property
    def read_batch(self) -> str:
        """Read the batch at a position."""
        found = self._list("query_id", "batch_id", "offsets", "rows", "digest")
        return f"SELECT {found} FROM {self.batch} WHERE {self.which} AND {self._is('position')}"

    @property
    def write_batch(self) -> str:
        """Remember a batch."""
        values = ", ".join([*map(self.bound, (*_OWNER, *_OF_BATCH)), *self._now])
        return f"INSERT INTO {self.batch} (\n{self._list(*_OWNER, *_OF_BATCH, *self._at)}\n) VALUES (\n{values}\n)"

    def forget_batches(self, past: str = "position") -> str:
        """Forget the batches up to the position that is bound by the name `past`."""
        return f"DELETE FROM {self.batch} WHERE {self.which} AND {self.quoted('position')} <= {self.bound(past)}"

    @property
    def forget_between(self) -> str:
        """Forget the batches above the position that is bound as `after` and below the one that is bound as `before`."""
        position = self.quoted("position")
        between = f"{position} > {self.bound('after')} AND {position} < {self.bound('before')}"
        return f"DELETE FROM {self.batch} WHERE {self.which} AND {between}"

    # --- parts

    @property
    def marker(self) -> str:
        """The table of markers in a statement with values."""
        return self.named(MARKER_TABLE).replace("%", self.percent)

    @property
    def batch(self) -> str:
        """The table of batches in a statement with values."""
        return self.named(BATCH_TABLE).replace("%", self.percent)

    @property
    def which(self) -> str:
        """The condition for one pipeline and sink."""
        return " AND ".join(map(self._is, _OWNER))

    def _into_marker(self, *more: str) -> str:
        return f"INSERT INTO {self.marker} (\n{self._list(*_OWNER, *_WRITTEN, *self._at, LEDGER_ID, *more)}\n)"

    @property
    def _values(self) -> str:
        return ", ".join([*map(self.bound, (*_OWNER, *_WRITTEN)), *self._now, self.bound(LEDGER_ID)])

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

    def _create(self, table: str, columns: Sequence[str], *, key: Sequence[str], optional: frozenset[str]) -> str:
        parts = [self._defined(name, optional=name in optional) for name in columns]
        parts += [f"PRIMARY KEY ({self._list(*key)})"] if self.keyed else []
        return f"{self.creating} {self.named(table)} (\n{', '.join(parts)}\n){self.options}"

    def _defined(self, name: str, *, optional: bool) -> str:
        kind = name.partition("_")[0] if name.startswith(("rows_", "digest_")) else name
        usual = self.number if kind == "rows" or kind in _NUMBERS else self.text
        required = " NOT NULL DEFAULT now()" if name == _AT and self.now is None else " NOT NULL"
        return f"{self.quoted(name)} {self.types.get(kind, usual)}{self.null if optional else required}"


class DatabaseMarkerStore:
    """A `MarkerStore` over `MarkerStatements`.

    `locking`: reading a marker locks its row, after waiting for a transaction of another run that has locked it. `has_ledger_id`:
    the marker table has that column; `prepare` adds it, so only readers before that pass False. `split_name` returns
    schema and table of a name, where a table can be named with or without its schema or quotes. `fencing`, `marking`: the fault
    points around locking and writing the marker.
    """

    def __init__(
        self,
        execute: Callable[[str, Mapping[str, Any]], Any],
        statements: MarkerStatements,
        *,
        locking: bool,
        has_ledger_id: bool = True,
        split_name: Callable[[str], tuple[str, str]] | None = None,
        fencing: Guard = nullcontext,
        marking: Guard = nullcontext,
    ) -> None:
        self._execute, self._sql, self._split_name = execute, statements, split_name
        self._fencing, self._marking = fencing, marking
        self._fence = statements.fence if locking else ()
        self._locking = locking and not self._fence
        self._read = statements.read() if has_ledger_id else statements.read_without_ledger_id

    def read(self, pipeline: PipelineName, sink: SinkName) -> TableMarker | None:
        which = {"pipeline": pipeline, "sink": sink}
        if self._fence:  # once in a transaction, before its first read
            with self._fencing():
                for statement in self._fence:
                    self._execute(statement, which)
            self._fence = ()
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

    def forget_between(self, pipeline: PipelineName, sink: SinkName, *, after: Position, before: Position) -> None:
        self._execute(self._sql.forget_between, {"pipeline": pipeline, "sink": sink, "after": after, "before": before})

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
            self._execute(self._sql.forget_batches(), {**place_of(publication), "position": past})
