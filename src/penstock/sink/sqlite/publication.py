"""One publication inside one transaction: marker read, rows moved and counted, marker written."""

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pyarrow as pa

from penstock.errors import ContentConflict, LedgerMismatch, PublishFailed
from penstock.faults import FaultPoint
from penstock.model import Publication, Published, Totals
from penstock.sink.sqlite.marker import TableMarker, minus, offsets_json, read_marker, remember, require_same, write_marker
from penstock.sink.sqlite.move import Moved, move

MOVE = FaultPoint("sqlite.move", "The rows of a decided batch are written into the table, in an open transaction.")
MARK = FaultPoint("sqlite.mark", "The marker is set to the batch, in the transaction of its rows.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The table and how rows get into it."""

    table: str
    write: str
    key: tuple[str, ...]


def apply(cursor: sqlite3.Cursor, publication: Publication, rows: Iterator["pa.RecordBatch"], target: Target) -> Published:
    """Show `publication` unless the table shows it already. The caller holds the write lock, and commits.

    Raises ContentConflict if another number of rows than decided was moved, LedgerMismatch for another ledger's position.
    """
    if not publication.staged and target.write != "replace":
        return Published(totals=publication.totals, already=True)
    marker = _marker(cursor, publication, target)
    if marker.position >= publication.position:
        require_same(cursor, publication, marker)
        return Published(totals=publication.totals, already=True)
    with MOVE.around(error=_broken_disk, lost=_broken_disk):
        moved = move(cursor, rows, table=target.table, write=target.write, key=target.key)
    _require_all(moved, publication, target)
    with MARK.around(error=_broken_disk, lost=_broken_disk):
        write_marker(cursor, _advanced(marker, publication, moved, write=target.write))
        remember(cursor, publication)
    return Published(totals=publication.totals, already=False)


def _marker(cursor: sqlite3.Cursor, publication: Publication, target: Target) -> TableMarker:
    marker = read_marker(cursor, publication.pipeline, publication.sink)
    if marker is None:
        raise PublishFailed(
            f"The database has no marker of pipeline {publication.pipeline!r} and sink {publication.sink!r}.",
            remedy="Restore the table penstock_marker from a backup; it belongs to the rows.",
        )
    if marker.table_name.lower() != target.table.lower():
        raise other_table(marker, target.table)
    return marker


def other_table(marker: TableMarker, table: str) -> LedgerMismatch:
    """The sink published into another table before: what is decided is there, not here."""
    return LedgerMismatch(
        f"Sink {marker.sink!r} of pipeline {marker.pipeline!r} filled table {marker.table_name!r} so far, expected {table!r}.",
        remedy="Name that table again, or give the sink another name; the batches so far stay in the old table.",
    )


def _require_all(moved: Moved, publication: Publication, target: Target) -> None:
    decided = publication.totals.rows
    if moved.rows != decided:
        raise ContentConflict(
            f"Batch {publication.batch.batch_id} has {decided} rows, but table {target.table!r} took {moved.rows}.",
            remedy="Look for a trigger or a view that drops rows, remove it and start again: the batch is published then.",
        )


def _advanced(marker: TableMarker, publication: Publication, moved: Moved, *, write: str) -> TableMarker:
    batch = Totals(rows=publication.totals.rows, digest=publication.totals.digest)
    fresh = write == "replace"
    return replace(
        marker,
        write=write,
        position=publication.position,
        generation=publication.generation,
        query_id=publication.batch.query_id,
        batch_id=publication.batch.batch_id,
        offsets=offsets_json(publication.batch),
        schema=publication.schema,
        decided=marker.decided + batch,
        before=Totals() if fresh else marker.before,
        after=batch if fresh else minus(marker.after + batch, moved.displaced),
    )


def _broken_disk(point: str) -> sqlite3.Error:
    return sqlite3.OperationalError(f"disk I/O error ({point})")
