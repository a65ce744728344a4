"""The SQL about markers, which is the same in all databases but for names, bound values and the present time."""

# ruff: noqa: S608 - every name in a statement is quoted or our own, every value is bound

from collections.abc import Callable
from dataclasses import dataclass

from penstock.sink.table.marker import LEDGER_ID
from penstock.sink.table.marker_store import MarkerStatements

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

    `now`: the expression of the present time; None, where `changes` is not used, if the column's default is that.
    `quoted`: how a column is named. `bound`: the expression of the value that is bound by a name.
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
        return ", ".join([*map(self._is, _WRITTEN), f"{self.quoted(_AT)} = {self.now}", self._is(LEDGER_ID)])

    @property
    def into_marker(self) -> str:
        """The beginning of an INSERT, before its values."""
        return f"INSERT INTO {self.marker} (\n{self._list(*_OWNER, *_WRITTEN, *self._at, LEDGER_ID)}\n)"

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
