"""Markers in the keyspace: what of a pipeline a table shows, and at which time stamp the rows of a batch are written.

Cassandra has no transactions. So a publication first takes its time stamp, then writes the rows with it, and moves the marker
last; both changes of the marker are conditional on what it was.
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from penstock.core.faults import FaultPoint
from penstock.core.model import PipelineName, Position, Publication, SinkName, Totals
from penstock.errors import Conflict
from penstock.sink.cassandra import statements as sql
from penstock.sink.cassandra.database import Around
from penstock.sink.cassandra.errors import cut_off
from penstock.sink.table.marker import (
    FORMAT_VERSION,
    NO_ROWS,
    TableMarker,
    batch_values,
    marker_from,
    marker_values,
    place_of,
)
from penstock.sink.table.marker_store import REMEMBERED_BATCHES

STAMP = FaultPoint("cassandra.stamp", "The marker takes the time stamp of a batch, before its first row is written.")
MARK = FaultPoint("cassandra.mark", "The marker is moved to the batch, after its last row is written.")

_APART = 2
"""Microseconds between two batches: what deletes a collection is stamped one earlier than what fills it."""
_LAST_OF_MILLISECOND = 999


class Execute(Protocol):
    """Runs a statement and gives all rows, however often that has to be tried."""

    def __call__(
        self, statement: str, values: Sequence[Any] = (), *, serial: bool = False, around: Around = nullcontext
    ) -> list[tuple[Any, ...]]:
        """Each try is made within `around()`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamp:
    """Microseconds at which a publication's rows are written, and what they displaced. The newest of all of the marker."""

    at_us: int = 0
    position: int = 0
    digest: str = ""
    displaced: Totals = NO_ROWS

    @property
    def values(self) -> tuple[Any, ...]:
        """In the order of `STAMPED`."""
        return self.at_us, self.position, self.digest, self.displaced.rows, f"{self.displaced.digest:016x}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Replaced:
    """What a publication's rows will replace, and the greatest time stamp of it: whose clock that came from nobody knows."""

    totals: Totals = NO_ROWS
    newest_us: int = 0

    def __add__(self, other: "Replaced") -> "Replaced":
        return Replaced(totals=self.totals + other.totals, newest_us=max(self.newest_us, other.newest_us))


class CassandraMarkerStore:
    """As `MarkerStore`, for one publication: it changes the marker only as long as it is what was read last.

    `named`: the markers' table has the column `ledger_id`; one that an older Penstock made gets it when the sink is prepared.
    """

    def __init__(self, execute: Execute, *, named: bool = True) -> None:
        self._execute, self._named = execute, named
        self._position: Position | None = None
        self._stamp = Stamp()

    def read(self, pipeline: PipelineName, sink: SinkName) -> TableMarker | None:
        """The marker, None if there is none yet. Raises FormatTooNew."""
        rows = self._execute(sql.READ_MARKER if self._named else sql.READ_UNNAMED, (pipeline, sink), serial=True)
        if not rows:
            return None
        at_us, position, digest, displaced, displaced_digest = rows[0][-len(sql.STAMPED) :]
        ledger_id = rows[0][len(sql.MARKED) - 1] if self._named else None
        marker = marker_from(rows[0], pipeline, sink, ledger_id=ledger_id)
        displaced_totals = Totals(rows=displaced, digest=int(displaced_digest, 16))
        self._position = marker.position
        self._stamp = Stamp(at_us=at_us, position=position, digest=digest, displaced=displaced_totals)
        return marker

    def write(self, marker: TableMarker) -> None:
        """Make the marker, or put it in place of the one that was read. Raises Conflict."""
        self._put(marker)

    def _put(self, marker: TableMarker, *, around: Around = nullcontext) -> None:
        who = (marker.pipeline, marker.sink)
        if self._position is None:
            self._change(sql.MAKE_MARKER, (*who, *_marked(marker), *self._stamp.values), around=around)
        else:
            values = (*_marked(marker), *who, self._position, self._stamp.at_us)
            self._change(sql.CHANGE_MARKER, values, around=around)
        self._position = marker.position

    def owners(self, table: str) -> Sequence[tuple[PipelineName, SinkName]]:
        """Every pipeline and sink whose marker names that table."""
        found = self._execute(sql.OWNERS)
        return [(PipelineName(pipeline), SinkName(sink)) for pipeline, sink, named in found if named == table]

    def newest_batch(self, pipeline: PipelineName, sink: SinkName) -> Position | None:
        """The last position that was published, as the batches remember it; None if there is none."""
        rows = self._execute(sql.NEWEST_BATCH, (pipeline, sink))
        return Position(rows[0][0]) if rows else None

    def batch_at(self, publication: Publication) -> tuple[Any, ...] | None:
        """What was published at that position."""
        rows = self._execute(sql.READ_BATCH, tuple(place_of(publication).values()))
        return tuple(rows[0]) if rows else None

    def stamped(self, publication: Publication, *, displaced: Callable[[], Replaced]) -> Stamp:
        """The time stamp for the publication's rows: the one it took before, or one above all that any batch before it had,
        and above that of what they replace. With it the marker takes the publication's ledger, so that no other one writes (I2).

        `displaced` reads what the rows will replace; it is asked before the first one is written and kept with the stamp, since
        nobody can tell afterwards. Raises Conflict.
        """
        digest = f"{publication.totals.digest:016x}"
        if (self._stamp.position, self._stamp.digest) == (publication.position, digest):
            return self._stamp
        replaced = displaced()
        [(now_ms,)] = self._execute(sql.NOW)
        at_us = max(now_ms * 1000 + _LAST_OF_MILLISECOND, self._stamp.at_us + _APART, replaced.newest_us + _APART)
        stamp = Stamp(at_us=at_us, position=publication.position, digest=digest, displaced=replaced.totals)
        who = (publication.pipeline, publication.sink)
        stamping = partial(STAMP.around, error=cut_off, lost=cut_off)
        claim = (1 if publication.ledger_id is None else FORMAT_VERSION, publication.ledger_id)
        self._change(sql.STAMP_MARKER, (*stamp.values, *claim, *who, self._position, self._stamp.at_us), around=stamping)
        self._stamp = stamp
        return stamp

    def advance(self, marker: TableMarker, publication: Publication) -> None:
        """Note the batch, and then move the marker to it. Raises Conflict."""
        place = tuple(place_of(publication).values())
        batch = batch_values(publication)
        long_past = publication.position - REMEMBERED_BATCHES
        self._execute(sql.WRITE_BATCH, (*place, *(batch[name] for name in sql.BATCHED), self._stamp.at_us))
        self._execute(sql.FORGET_BATCH, (self._stamp.at_us, *place[:2], long_past))
        self._put(marker, around=partial(MARK.around, error=cut_off, lost=cut_off))

    def _change(self, statement: str, values: Sequence[Any], *, around: Around) -> None:
        """A change whose answer was lost is not applied when it is tried again: then the marker is read, which tells all."""
        if not self._execute(statement, values, around=around)[0][0]:
            raise Conflict("the marker was moved by another run, or by this one whose answer was lost")


def _marked(marker: TableMarker) -> tuple[Any, ...]:
    values = marker_values(marker)
    return tuple(values[name] for name in sql.MARKED)
