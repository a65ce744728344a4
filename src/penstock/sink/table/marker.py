"""The marker of a table: which batches of a pipeline it shows, written in the same transaction as the rows."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from penstock.core.high_water_mark import HighWaterMark
from penstock.core.model import (
    DIGEST_MODULUS,
    Batch,
    BatchId,
    Generation,
    LedgerId,
    PipelineName,
    Position,
    Publication,
    QueryId,
    SinkName,
    Totals,
)
from penstock.errors import FormatTooNew, LedgerMismatch
from penstock.sink.table.history import HISTORY

NAMED = 2
"""The format of a marker with its ledger's identity. One without it has version 1, which older Penstocks write and read."""
_WIDENING, _IN_SEQUENCE, _WIDENING_IN_SEQUENCE = 3, 4, 5
"""The formats of a marker that `is_widening`, `is_in_sequence`, or both. An older Penstock refuses them: it would publish the
first wide batch with wrong sums, and have rows replaced by older ones.
"""
_HISTORY = 6
"""The format of a marker of a table that keeps history, in which an older Penstock would count other columns."""
FORMAT_VERSION = _HISTORY
"""The newest format."""
LEDGER_ID = "ledger_id"
"""The column that markers of version 2 have and those of version 1 lack."""
_PLAIN = ("table_name", "write", "position", "generation", "query_id", "batch_id", "offsets", "schema")
NOTHING_YET = Position(0)
NO_ROWS = Totals()


@dataclass(frozen=True, slots=True, kw_only=True)
class TableMarker:
    """One row of `penstock_marker`. All totals are rows and digests only.

    `position`: the table shows every publication of ledger `ledger_id` up to it. `before`: the rows that the table held when
    the marker was created. `decided`: all rows ever decided for this sink. `after`: the rows in the table because of them,
    fewer than `decided` where an upsert replaced or an insert-if-absent skipped some. The table shows `before + after`, hashed
    with the types of `schema`; each batch counts in `decided` as its own types hash it. `is_widening`: a start has seen wider
    types than those of `schema`, and no batch with them is published yet. `is_in_sequence`: batches may be decided with
    `sequence_by` or `update_when`.
    """

    pipeline: PipelineName
    sink: SinkName
    table_name: str
    write: str
    ledger_id: LedgerId | None = None
    position: Position = NOTHING_YET
    generation: int | None = None
    query_id: str | None = None
    batch_id: int | None = None
    offsets: str | None = None
    schema: str | None = None
    decided: Totals = NO_ROWS
    before: Totals = NO_ROWS
    after: Totals = NO_ROWS
    is_widening: bool = False
    is_in_sequence: bool = False

    @property
    def shown(self) -> Totals:
        """What the table holds, unless somebody else has changed it."""
        return self.before + self.after

    @property
    def high_water_mark(self) -> HighWaterMark:
        """The part of the marker that a start compares with the ledger."""
        return HighWaterMark(
            position=self.position,
            ledger_id=self.ledger_id,
            generation=None if self.generation is None else Generation(self.generation),
            query_id=None if self.query_id is None else QueryId(self.query_id),
            batch_id=None if self.batch_id is None else BatchId(self.batch_id),
        )


class MarkerTransaction(Protocol):
    """Reads and writes the marker of one publication, inside an open transaction."""

    def read(self, pipeline: PipelineName, sink: SinkName) -> TableMarker | None:
        """Return the marker, None if there is none yet. Raise FormatTooNew.

        Where the transaction may write, nobody else can change the marker until it ends.
        """
        ...

    def batch_at(self, publication: Publication) -> tuple[Any, ...] | None:
        """Return the `identity` values of the batch published at the publication's position, None if no longer remembered."""
        ...

    def advance(self, marker: TableMarker, publication: Publication) -> None:
        """Write the marker, remember which batch was published at its position, and forget batches that are long past."""
        ...


class MarkerStore(MarkerTransaction, Protocol):
    """Reads and writes the markers of one database, inside an open transaction."""

    def write(self, marker: TableMarker) -> None:
        """Write the marker in place of the old one."""
        ...

    def owners(self, table: str) -> Sequence[tuple[PipelineName, SinkName]]:
        """Return every pipeline and sink whose marker names `table`."""
        ...

    def newest_batch(self, pipeline: PipelineName, sink: SinkName) -> Position | None:
        """Return the newest position of the remembered batches, which are stored apart from the marker; None if there is none."""
        ...


def minus(one: Totals, other: Totals) -> Totals:
    """Return rows and digest of `one` without those of `other`."""
    return Totals(rows=one.rows - other.rows, digest=(one.digest - other.digest) % DIGEST_MODULUS)


def marker_from(row: Sequence[Any], pipeline: PipelineName, sink: SinkName, *, ledger_id: LedgerId | None = None) -> TableMarker:
    """Return the marker from its row. Raise FormatTooNew.

    The row starts with `format_version`. TableMarker's other columns follow in its order, without pipeline, sink and ledger.
    """
    if row[0] > FORMAT_VERSION:
        raise FormatTooNew(
            f"The marker of sink {sink!r} has format {row[0]}, this Penstock knows formats up to {FORMAT_VERSION}.",
            remedy="Use the Penstock that wrote it, or a newer one.",
        )
    return TableMarker(
        pipeline=pipeline,
        sink=sink,
        ledger_id=ledger_id,
        **dict(zip(_PLAIN, row[1:9], strict=True)),
        decided=_totals(row[9], row[10]),
        before=_totals(row[11], row[12]),
        after=_totals(row[13], row[14]),
        is_widening=row[0] in {_WIDENING, _WIDENING_IN_SEQUENCE},
        is_in_sequence=row[0] in {_IN_SEQUENCE, _WIDENING_IN_SEQUENCE},
    )


def marker_values(marker: TableMarker) -> Mapping[str, Any]:
    """Return the marker's row as values by column."""
    return {
        "pipeline": marker.pipeline,
        "sink": marker.sink,
        "table_name": marker.table_name,
        "write": marker.write,
        "format_version": _format_of(marker),
        "ledger_id": marker.ledger_id,
        "position": marker.position,
        "generation": marker.generation,
        "query_id": marker.query_id,
        "batch_id": marker.batch_id,
        "offsets": marker.offsets,
        "schema": marker.schema,
        **_columns("decided", marker.decided),
        **_columns("before", marker.before),
        **_columns("after", marker.after),
    }


def _format_of(marker: TableMarker) -> int:
    """Return the oldest format that says all of the marker."""
    if marker.write == HISTORY:
        return _HISTORY
    if marker.is_in_sequence:
        return _WIDENING_IN_SEQUENCE if marker.is_widening else _IN_SEQUENCE
    return _WIDENING if marker.is_widening else 1 if marker.ledger_id is None else NAMED


def place_of(publication: Publication) -> Mapping[str, Any]:
    """Return pipeline, sink and position: the key of a row of `penstock_batch`."""
    return {"pipeline": publication.pipeline, "sink": publication.sink, "position": publication.position}


def batch_values(publication: Publication) -> Mapping[str, Any]:
    """Return the row of `penstock_batch` as values by column."""
    return {**place_of(publication), **identity(publication), "generation": publication.generation}


def identity(publication: Publication) -> Mapping[str, Any]:
    """Return the values that distinguish the publication's batch from any other."""
    return {
        "query_id": publication.batch.query_id,
        "batch_id": publication.batch.batch_id,
        "offsets": offsets_json(publication.batch),
        "rows": publication.totals.rows,
        "digest": _hex(publication.totals.digest),
    }


def require_same(found: "tuple[Any, ...] | None", publication: Publication, marker: TableMarker) -> None:
    """Raise LedgerMismatch unless `found`, what the table showed at this position, is the publication's batch.

    Positions of two ledgers do not compare: with a new ledger, all batches up to the old marker would be taken for published.
    """
    if found == tuple(identity(publication).values()):
        return
    held = "no batch that it still knows" if found is None else f"batch {found[1]} of query {found[0]} with {found[3]} rows"
    raise LedgerMismatch(
        f"The ledger publishes batch {publication.batch.batch_id} of query {publication.batch.query_id} at position "
        f"{publication.position}, but table {marker.table_name!r} stands at position {marker.position} and had {held} there.",
        remedy="Another ledger filled this table: restore that one, or give the sink another name and an empty table.",
    )


def offsets_json(batch: Batch) -> str:
    """Return the batch's offsets for users' SQL: a JSON list of objects with source, start and end."""
    ranges = [{"source": part.source, "start": _loaded(part.start), "end": _loaded(part.end)} for part in batch.offsets]
    return json.dumps(ranges, ensure_ascii=False, separators=(",", ":"))


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
