"""The marker: what of a pipeline a table shows, in the same transaction as the rows."""

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.errors import FormatTooNew, LedgerMismatch
from penstock.model import DIGEST_MODULUS, Batch, PipelineName, Position, Publication, SinkName, Totals
from penstock.sink.sqlite import statements as sql

FORMAT_VERSION = 1
NOTHING_YET = Position(0)
NO_ROWS = Totals()
REMEMBERED_BATCHES = 1000
"""How many of the last positions are told apart one by one. A zombie that is further behind is refused instead of recognised."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableMarker:
    """One row of `penstock_marker`. All totals are rows and digests only.

    `position`: every publication up to it is in the table. `before`: the rows that the table held when the marker was made.
    `decided`: all rows ever decided for this sink. `after`: the rows that are there because of them; less than `decided` where an
    upsert replaced or an insert-if-absent skipped some. The table shows `before + after`.
    """

    pipeline: PipelineName
    sink: SinkName
    table_name: str
    write: str
    position: Position = NOTHING_YET
    generation: int | None = None
    query_id: str | None = None
    batch_id: int | None = None
    offsets: str | None = None
    schema: str | None = None
    decided: Totals = NO_ROWS
    before: Totals = NO_ROWS
    after: Totals = NO_ROWS


def minus(one: Totals, other: Totals) -> Totals:
    """Rows and digest of `one` without `other`."""
    return Totals(rows=one.rows - other.rows, digest=(one.digest - other.digest) % DIGEST_MODULUS)


def read_marker(cursor: sqlite3.Cursor, pipeline: PipelineName, sink: SinkName) -> TableMarker | None:
    """The marker, None if there is none yet. Raises FormatTooNew."""
    cursor.row_factory = None
    row = cursor.execute(sql.READ_MARKER, {"pipeline": pipeline, "sink": sink}).fetchone()
    if row is None:
        return None
    if row[0] > FORMAT_VERSION:
        raise FormatTooNew(
            f"The marker of sink {sink!r} has format {row[0]}, this Penstock knows formats up to {FORMAT_VERSION}.",
            remedy="Use the Penstock that wrote it, or a newer one.",
        )
    return TableMarker(
        pipeline=pipeline,
        sink=sink,
        table_name=row[1],
        write=row[2],
        position=row[3],
        generation=row[4],
        query_id=row[5],
        batch_id=row[6],
        offsets=row[7],
        schema=row[8],
        decided=_totals(row[9], row[10]),
        before=_totals(row[11], row[12]),
        after=_totals(row[13], row[14]),
    )


def write_marker(cursor: sqlite3.Cursor, marker: TableMarker) -> None:
    """Put the marker in place of the old one."""
    cursor.execute(
        sql.WRITE_MARKER,
        {
            "pipeline": marker.pipeline,
            "sink": marker.sink,
            "table_name": marker.table_name,
            "write": marker.write,
            "format_version": FORMAT_VERSION,
            "position": marker.position,
            "generation": marker.generation,
            "query_id": marker.query_id,
            "batch_id": marker.batch_id,
            "offsets": marker.offsets,
            "schema": marker.schema,
            **_columns("decided", marker.decided),
            **_columns("before", marker.before),
            **_columns("after", marker.after),
        },
    )


def remember(cursor: sqlite3.Cursor, publication: Publication) -> None:
    """Note which batch was published at this position, and forget those that are long past."""
    place = {"pipeline": publication.pipeline, "sink": publication.sink}
    cursor.execute(
        sql.WRITE_BATCH,
        {**place, **_identity(publication), "position": publication.position, "generation": publication.generation},
    )
    cursor.execute(sql.FORGET_BATCHES, {**place, "position": publication.position - REMEMBERED_BATCHES})


def require_same(cursor: sqlite3.Cursor, publication: Publication, marker: TableMarker) -> None:
    """Raise LedgerMismatch unless what the table showed at this position is this very batch.

    A position says nothing across ledgers: with a new ledger, all batches up to the old marker would be taken for published.
    """
    place = {"pipeline": publication.pipeline, "sink": publication.sink, "position": publication.position}
    found = cursor.execute(sql.READ_BATCH, place).fetchone()
    expected = tuple(_identity(publication).values())
    if found == expected:
        return
    held = "no batch that it still knows" if found is None else f"batch {found[1]} of query {found[0]} with {found[3]} rows"
    raise LedgerMismatch(
        f"The ledger publishes batch {publication.batch.batch_id} of query {publication.batch.query_id} at position "
        f"{publication.position}, but table {marker.table_name!r} stands at position {marker.position} and had {held} there.",
        remedy="Another ledger filled this table: restore that one, or give the sink another name and an empty table.",
    )


def offsets_json(batch: Batch) -> str:
    """The batch's offsets for people's SQL: a list of objects with source, start and end."""
    ranges = [{"source": part.source, "start": _loaded(part.start), "end": _loaded(part.end)} for part in batch.offsets]
    return json.dumps(ranges, ensure_ascii=False, separators=(",", ":"))


def _identity(publication: Publication) -> Mapping[str, Any]:
    return {
        "query_id": publication.batch.query_id,
        "batch_id": publication.batch.batch_id,
        "offsets": offsets_json(publication.batch),
        "rows": publication.totals.rows,
        "digest": _hex(publication.totals.digest),
    }


def _loaded(offset: str | None) -> Any:
    try:
        return None if offset is None else json.loads(offset)
    except ValueError:
        return offset


def _columns(name: str, totals: Totals) -> Mapping[str, Any]:
    return {f"rows_{name}": totals.rows, f"digest_{name}": _hex(totals.digest)}


def _totals(rows: int, digest: str) -> Totals:
    return Totals(rows=rows, digest=int(digest, 16))


def _hex(digest: int) -> str:
    return f"{digest:016x}"
