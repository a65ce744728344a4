"""Markers in a database's own tables, read and written in an open transaction."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from penstock.faults import FaultPoint
from penstock.model import PipelineName, Position, Publication, SinkName
from penstock.sink.table.marker import TableMarker, batch_values, marker_from, marker_values, place_of

REMEMBERED_BATCHES = 1000
"""How many of the last positions are told apart one by one. A zombie that is further behind is refused instead of recognised."""

Q = TypeVar("Q")


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkStatements(Generic[Q]):
    """All SQL about one database's markers; every statement takes values by name.

    `lock_marker`: as `read_marker`, the newest that is committed, which nobody else can lock or change until this transaction
    ends. `write_marker`: puts it in place of the old one. `owners`: pipelines and sinks whose marker names `table`.
    """

    read_marker: Q
    lock_marker: Q
    write_marker: Q
    owners: Q
    newest_batch: Q
    read_batch: Q
    write_batch: Q
    forget_batches: Q


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkFaults:
    """Where faults strike while markers are used, and how they look there. `fence`: when one is locked, None if none is."""

    fence: FaultPoint | None
    mark: FaultPoint
    broken: Callable[[str], Exception]


class DatabaseMarks(Generic[Q]):
    """As `Marks`. With a fence, reading a marker locks its row, and waits for a transaction of another run that holds it."""

    def __init__(self, execute: Callable[[Q, Mapping[str, Any]], Any], statements: MarkStatements[Q], faults: MarkFaults) -> None:
        self._execute, self._sql, self._faults = execute, statements, faults

    def read(self, pipeline: PipelineName, sink: SinkName) -> TableMarker | None:
        """The marker, None if there is none yet. Raises FormatTooNew."""
        which, faults = {"pipeline": pipeline, "sink": sink}, self._faults
        if faults.fence is None:
            row = self._execute(self._sql.read_marker, which).fetchone()
        else:
            with faults.fence.around(error=faults.broken, lost=faults.broken):
                row = self._execute(self._sql.lock_marker, which).fetchone()
        return None if row is None else marker_from(row, pipeline, sink)

    def write(self, marker: TableMarker) -> None:
        """Put the marker in place of the old one."""
        self._execute(self._sql.write_marker, marker_values(marker))

    def owners(self, table: str) -> Sequence[tuple[PipelineName, SinkName]]:
        """Every pipeline and sink whose marker names that table."""
        rows = self._execute(self._sql.owners, {"table": table}).fetchall()
        return [(PipelineName(pipeline), SinkName(sink)) for pipeline, sink in rows]

    def newest_batch(self, pipeline: PipelineName, sink: SinkName) -> Position | None:
        """The last position that the batches remember."""
        [position] = self._execute(self._sql.newest_batch, {"pipeline": pipeline, "sink": sink}).fetchone()
        return None if position is None else Position(position)

    def batch_at(self, publication: Publication) -> tuple[Any, ...] | None:
        """What was published at that position."""
        found: tuple[Any, ...] | None = self._execute(self._sql.read_batch, place_of(publication)).fetchone()
        return found

    def advance(self, marker: TableMarker, publication: Publication) -> None:
        """Write the marker and note the batch."""
        with self._faults.mark.around(error=self._faults.broken, lost=self._faults.broken):
            self.write(marker)
            self._execute(self._sql.write_batch, batch_values(publication))
            past = {**place_of(publication), "position": publication.position - REMEMBERED_BATCHES}
            self._execute(self._sql.forget_batches, past)
