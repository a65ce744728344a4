"""Markers in a database's own tables, read and written in an open transaction."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from penstock.core.model import PipelineName, Position, Publication, SinkName
from penstock.sink.table.marker import TableMarker, batch_values, marker_from, marker_values, place_of

REMEMBERED_BATCHES = 1000
"""How many of the last positions are told apart one by one. A zombie that is further behind is refused instead of recognised."""

DBAPI_MARKER_TABLE = "penstock_dbapi_marker"
"""The markers of the dbapi sink, which has tables of its own in every database."""
OWNERS_BY_DBAPI = "SELECT pipeline, sink, table_name, {schema} FROM {marker} ORDER BY pipeline, sink"

Q = TypeVar("Q")


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkerStatements(Generic[Q]):
    """All SQL about one database's markers; every statement takes values by name.

    `read_marker` and `lock_marker` give the columns of `marker_from` and then `ledger_id`; `read_unnamed` is for a table without
    that column, as an older Penstock made it, and gives NULL for it.
    `lock_marker`: as `read_marker`, the newest that is committed, which nobody else can lock or change until this transaction
    ends. `write_marker`: puts it in place of the old one; where it changes no row without an old one, `make_marker` puts the
    first one there. `owners`: pipelines and sinks whose marker names `table`; where a table has several names, those of every
    marker, and the name in it. `advance`: what `write_marker`, `write_batch` and `forget_batches` do, whose position it calls
    `past`, where one statement can.
    """

    read_marker: Q
    read_unnamed: Q
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
    """As `MarkerStore`. `locking`: reading a marker locks its row, and waits for a transaction of another run that holds it.

    `named`: the markers' table has the column `ledger_id`. `prepare` adds it, so that only who looks before that says False.
    `split_name`: schema and table of a name, where a table can be named with its schema or without, and in quotes or not.
    """

    def __init__(
        self,
        execute: Callable[[Q, Mapping[str, Any]], Any],
        statements: MarkerStatements[Q],
        *,
        locking: bool,
        named: bool = True,
        split_name: Callable[[str], tuple[str, str]] | None = None,
    ) -> None:
        self._execute, self._sql, self._locking, self._split_name = execute, statements, locking, split_name
        self._read = statements.read_marker if named else statements.read_unnamed

    @abstractmethod
    def _marking(self) -> AbstractContextManager[None]:
        """The fault point around writing the marker."""

    def _fencing(self) -> AbstractContextManager[None]:
        """The fault point around locking it."""
        return nullcontext()

    def read(self, pipeline: PipelineName, sink: SinkName) -> TableMarker | None:
        """The marker, None if there is none yet. Raises FormatTooNew."""
        which = {"pipeline": pipeline, "sink": sink}
        if not self._locking:
            row = self._execute(self._read, which).fetchone()
        else:
            with self._fencing():
                row = self._execute(self._sql.lock_marker, which).fetchone()
        return None if row is None else marker_from(row, pipeline, sink, ledger_id=row[-1])

    def write(self, marker: TableMarker) -> None:
        """Put the marker in place of the old one."""
        values = marker_values(marker)
        changed = self._execute(self._sql.write_marker, values)
        if self._sql.make_marker is not None and not changed.rowcount:
            self._execute(self._sql.make_marker, values)

    def owners(self, table: str) -> Sequence[tuple[PipelineName, SinkName]]:
        """Every pipeline and sink whose marker names that table."""
        rows = self._execute(self._sql.owners, {"table": table}).fetchall()
        return [(PipelineName(pipeline), SinkName(sink)) for pipeline, sink, *named in rows if self._are_one(table, *named)]

    def _are_one(self, *names: str) -> bool:
        return self._split_name is None or len({*map(self._split_name, names)}) == 1

    def newest_batch(self, pipeline: PipelineName, sink: SinkName) -> Position | None:
        """The last position that the batches remember."""
        [position] = self._execute(self._sql.newest_batch, {"pipeline": pipeline, "sink": sink}).fetchone()
        return None if position is None else Position(position)

    def batch_at(self, publication: Publication) -> tuple[Any, ...] | None:
        """What was published at that position. Some drivers make lists of rows."""
        found = self._execute(self._sql.read_batch, place_of(publication)).fetchone()
        return None if found is None else tuple(found)

    def advance(self, marker: TableMarker, publication: Publication) -> None:
        """Write the marker and note the batch."""
        past, noted = publication.position - REMEMBERED_BATCHES, batch_values(publication)
        with self._marking():
            if self._sql.advance is not None:
                self._execute(self._sql.advance, {**marker_values(marker), **noted, "past": past})
                return
            self.write(marker)
            self._execute(self._sql.write_batch, noted)
            self._execute(self._sql.forget_batches, {**place_of(publication), "position": past})
