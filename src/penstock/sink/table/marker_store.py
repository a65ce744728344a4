"""The markers in a database's own tables, read and written in an open transaction."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from penstock.core.model import PipelineName, Position, Publication, SinkName
from penstock.sink.table.marker import TableMarker, batch_values, marker_from, marker_values, place_of

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
