"""Markers in a Cassandra keyspace: what a table shows of a pipeline, and the time stamp at which a batch's rows are written.

Cassandra has no transactions. So a publication first takes its time stamp, then writes the rows with it, and moves the marker
last. Both changes of the marker are conditional on its previous state.
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from penstock.core.faults import FaultPoint
from penstock.core.model import PipelineName, Position, Publication, SinkName, Totals
from penstock.errors import Conflict
from penstock.sink.cassandra import statements as sql
from penstock.sink.cassandra.database import Around, Row
from penstock.sink.cassandra.errors import connection_lost
from penstock.sink.table.marker import (
    NAMED,
    NO_ROWS,
    TableMarker,
    batch_values,
    marker_from,
    marker_values,
    place_of,
)
from penstock.sink.table.marker_store import MARKER_COLUMNS, REMEMBERED_BATCHES

STAMP = FaultPoint("cassandra.stamp", "The marker takes the time stamp of a batch, before its first row is written.")
MARK = FaultPoint("cassandra.mark", "The marker is moved to the batch, after its last row is written.")

Execute: TypeAlias = Callable[..., list[Row]]
"""Runs a statement as `Connection.execute` does, as often as needed."""

_APART = 2
"""Microseconds between two batches: what deletes a collection is stamped one earlier than what fills it."""
_LAST_OF_MILLISECOND = 999


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamp:
    """The newest time stamp of a marker, in microseconds: that of a publication's rows, with what they displaced."""

    at_us: int = 0
    position: int = 0
    digest: str = ""
    displaced: Totals = NO_ROWS

    @property
    def values(self) -> tuple[Any, ...]:
        """The values in the order of `STAMPED`."""
        return self.at_us, self.position, self.digest, self.displaced.rows, f"{self.displaced.digest:016x}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Replaced:
    """What a publication's rows will replace, and its greatest time stamp, which may come from anybody's clock."""

    totals: Totals = NO_ROWS
    newest_us: int = 0

    def __add__(self, other: "Replaced") -> "Replaced":
        return Replaced(totals=self.totals + other.totals, newest_us=max(self.newest_us, other.newest_us))


class CassandraMarkerStore:
    """A `MarkerStore` for one publication. It changes the marker only if nobody else has since it was read.

    `has_ledger_id`: the markers' table has the column `ledger_id`, which preparing adds to a table of an older Penstock.
    """

    def __init__(self, execute: Execute, *, has_ledger_id: bool = True) -> None:
        self._execute, self._has_ledger_id = execute, has_ledger_id
        self._position: Position | None = None
        self._stamp = Stamp()

    def read(self, pipeline: PipelineName, sink: SinkName) -> TableMarker | None:
        statement = sql.READ_MARKER if self._has_ledger_id else sql.READ_WITHOUT_LEDGER_ID
        rows = self._execute(statement, (pipeline, sink), serial=True)
        if not rows:
            return None
        at_us, position, digest, displaced, displaced_digest = rows[0][-len(sql.STAMPED) :]
        ledger_id = rows[0][len(MARKER_COLUMNS) - 1] if self._has_ledger_id else None
        marker = marker_from(rows[0], pipeline, sink, ledger_id=ledger_id)
        displaced_totals = Totals(rows=displaced, digest=int(displaced_digest, 16))
        self._position = marker.position
        self._stamp = Stamp(at_us=at_us, position=position, digest=digest, displaced=displaced_totals)
        return marker

    def write(self, marker: TableMarker, *, around: Around = nullcontext) -> None:
        """Create the marker, or replace the one that was read. Raises Conflict."""
        who = (marker.pipeline, marker.sink)
        if self._position is None:
            self._change(sql.MAKE_MARKER, (*who, *_marked(marker), *self._stamp.values), around=around)
        else:
            values = (*_marked(marker), *who, self._position, self._stamp.at_us)
            self._change(sql.CHANGE_MARKER, values, around=around)
        self._position = marker.position

    def owners(self, table: str) -> Sequence[tuple[PipelineName, SinkName]]:
        found = self._execute(sql.OWNERS)
        return [(PipelineName(pipeline), SinkName(sink)) for pipeline, sink, name in found if name == table]

    def newest_batch(self, pipeline: PipelineName, sink: SinkName) -> Position | None:
        rows = self._execute(sql.NEWEST_BATCH, (pipeline, sink))
        return Position(rows[0][0]) if rows else None

    def batch_at(self, publication: Publication) -> tuple[Any, ...] | None:
        rows = self._execute(sql.READ_BATCH, tuple(place_of(publication).values()))
        return tuple(rows[0]) if rows else None

    def stamped(self, publication: Publication, *, hidden_us: int, displaced: Callable[[], Replaced]) -> Stamp:
        """Return the time stamp for the publication's rows: the one that it took before, else a new one.

        A new one is above those of all batches before, above that of what the rows replace, and above `hidden_us`, up to which
        the table hides what is written. One that was taken before, but hides rows now, is replaced: whoever writes with it still
        writes the same rows, which lose. With a new one the marker takes the publication's ledger, so that no other one writes
        (I2). `displaced` reads what the rows will replace; it is called before the first one is written, and its result is
        stored with the stamp, since nobody can tell afterwards. Raises Conflict.
        """
        digest = f"{publication.totals.digest:016x}"
        is_stamped = (self._stamp.position, self._stamp.digest) == (publication.position, digest)
        if is_stamped and self._stamp.at_us > hidden_us:
            return self._stamp
        replaced = Replaced(totals=self._stamp.displaced) if is_stamped else displaced()
        [(now_ms,)] = self._execute(sql.NOW)
        least_us = max(self._stamp.at_us, replaced.newest_us, hidden_us) + _APART
        at_us = max(now_ms * 1000 + _LAST_OF_MILLISECOND, least_us)
        stamp = Stamp(at_us=at_us, position=publication.position, digest=digest, displaced=replaced.totals)
        who = (publication.pipeline, publication.sink)
        stamping = partial(STAMP.around, error=connection_lost, lost=connection_lost)
        claim = (1 if publication.ledger_id is None else NAMED, publication.ledger_id)
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
        self.write(marker, around=partial(MARK.around, error=connection_lost, lost=connection_lost))

    def _change(self, statement: str, values: Sequence[Any], *, around: Around) -> None:
        """Make a conditional change. Raises Conflict, also if an unanswered earlier try took effect: the marker shows which."""
        if not self._execute(statement, values, around=around)[0][0]:
            raise Conflict("the marker was moved by another run, or by an earlier request of this one whose answer was lost")


def _marked(marker: TableMarker) -> tuple[Any, ...]:
    values = marker_values(marker)
    return tuple(values[name] for name in MARKER_COLUMNS)
