"""One publication inside one transaction: the marker is read, rows are written and counted, the marker is advanced."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

import pyarrow as pa

from penstock.core.model import Json, Position, Publication, Published, RowDigest, Totals
from penstock.core.row_hash import digest, row_hashes
from penstock.core.update_condition import parse_condition
from penstock.errors import ContentConflict, LedgerMismatch, PublishFailed, Refused
from penstock.sink.copied_ledger import require_no_copy
from penstock.sink.table.marker import NOTHING_YET, MarkerTransaction, TableMarker, minus, offsets_json, require_same
from penstock.sink.table.target import MERGE, NotStoredError, Target, widened
from penstock.spark.schema import arrow_schema


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """The result of a load. `rows`: how many rows of the batch were written or are known not to stay.

    `displaced`: rows of the table that the batch replaced or deleted, and rows of the batch that do not stay: skipped ones,
    superseded ones, and those that delete.
    """

    rows: int
    displaced: Totals

    def leaving_out(self, rows: Totals) -> "Loaded":
        """Return the result with `rows` of the batch that do not stay, which were taken out before the load."""
        return Loaded(rows=self.rows + rows.rows, displaced=self.displaced + rows)


def apply(
    markers: MarkerTransaction,
    publication: Publication,
    target: Target,
    *,
    since: Position = NOTHING_YET,
    load: Callable[[], Loaded],
    read: Callable[["pa.Schema"], Iterator["pa.RecordBatch"]] | None = None,
) -> Published:
    """Show `publication` in the table, unless the table shows it already.

    The caller commits; until then, `markers` exclude other publishers. `since` is the last position that the caller saw
    committed. `read` yields the rows that are there, for sinks that widen columns. Raises ContentConflict if another number of
    rows than decided was written, LedgerMismatch for another ledger's position, Refused for a table that lost what it showed, or
    whose rows were changed before its first batch with wider types, PublishFailed if there is no marker.
    """
    if not changes_table(publication, target):
        return Published(totals=publication.totals, already=True)
    marker = _marker(markers, publication, target)
    require_same_ledger(marker, publication)
    require_no_older_copy(marker, since)
    if marker.position >= publication.position:  # I2
        require_same(markers.batch_at(publication), publication, marker)
        return Published(totals=publication.totals, already=True)
    _require_no_older_generation(marker, publication)
    require_no_copy(publication, marker.position, place=f"Table {marker.table_name!r}")
    write = _write_of(publication, target, marker)
    if read is not None and publication.staged and write not in {"replace", MERGE}:
        marker = _rehashed(marker, publication, target, read)
    loaded = load() if publication.staged or write == "replace" else Loaded(rows=0, displaced=Totals())
    _require_all(loaded, publication, target)  # I1, I2
    if target.has_staged and publication.staged and not target.chooses_rows:  # none is decided with a comparison any more
        marker = replace(marker, is_in_sequence=False)
    markers.advance(_advanced(marker, publication, loaded, write=write), publication)
    return Published(totals=publication.totals, already=False)


def decided_as(target: Target) -> Mapping[str, Json]:
    """Return what the `ref` of every staged piece records about how its rows are to be written."""
    noted: dict[str, Json] = {"write": target.write, "key": list(target.key)}
    if target.deletes:
        noted["deletes"] = True
    if target.sequence_by is not None:
        noted["sequence_by"] = target.sequence_by
    if target.update_when is not None:
        noted["update_when"] = target.update_when.text
    return noted


def decided_target(publication: Publication, target: Target) -> Target:
    """Return the target with the `write` and key of the decision, whatever the sink's settings are now (I8).

    Pieces of an older Penstock do not record them: they are written as configured, and so is a batch without pieces. Raises
    Refused if `write: merge` was decided and is no longer configured.
    """
    ref = publication.staged[0].ref if publication.staged else {}
    if "write" not in ref:
        return replace(target, deletes=False, sequence_by=None, update_when=None)
    write, noted, sequence, condition = str(ref["write"]), ref.get("key"), ref.get("sequence_by"), ref.get("update_when")
    key = tuple(map(str, noted)) if isinstance(noted, list) else ()
    if write == MERGE and target.merge is None:
        raise Refused(
            f"Batch {publication.batch.batch_id} was decided with `write: {MERGE}` into table {target.table!r}, and the sink has "
            f"`write: {target.write}` now.",
            remedy=f"Set `write: {MERGE}` and `merge` back and run `penstock recover`, which publishes the batch.",
        )
    return replace(
        target,
        write=write,
        key=key,
        merge=target.merge if write == MERGE else None,
        deletes=ref.get("deletes") is True,
        sequence_by=None if sequence is None else str(sequence),
        update_when=None if condition is None else parse_condition(str(condition)),
    )


def _write_of(publication: Publication, target: Target, marker: TableMarker) -> str:
    """Return the publication's `write`, which is inferred for an empty batch, since no piece records it.

    An empty batch has the sink's `write` if this run decided it under another generation than the marker's. Else it has the
    marker's: an empty batch of an earlier run clears no table that was not replaced before.
    """
    is_write_known = publication.staged or (target.has_staged and publication.generation != marker.generation)
    return target.write if is_write_known else marker.write


def changes_table(publication: Publication, target: Target) -> bool:
    """Return whether publishing changes the table. If not, its marker stays where it is."""
    return bool(publication.staged) or target.write == "replace"


def _marker(markers: MarkerTransaction, publication: Publication, target: Target) -> TableMarker:
    marker = markers.read(publication.pipeline, publication.sink)
    if marker is None:
        raise no_marker(publication)
    if not target.is_table(marker.table_name):
        raise other_table(marker, target.table)
    return marker


def no_marker(publication: Publication) -> PublishFailed:
    """Return the error for a missing marker, or table of markers: what the table shows of the decided batches is unknown."""
    return PublishFailed(
        f"The database has no marker of pipeline {publication.pipeline!r} and sink {publication.sink!r}.",
        remedy="Restore the table penstock_marker from a backup; it belongs to the rows.",
    )


def require_same_ledger(marker: TableMarker, publication: Publication) -> None:
    """Raise LedgerMismatch for a marker of another ledger: positions of two ledgers do not compare (I2).

    A marker without a ledger's identity passes: the start has compared it with the ledger.
    """
    if marker.ledger_id not in {None, publication.ledger_id}:
        raise LedgerMismatch(
            f"Ledger {publication.ledger_id} publishes position {publication.position}, but table {marker.table_name!r} shows "
            f"what ledger {marker.ledger_id} decided, up to its position {marker.position}.",
            remedy="Stop the run of the ledger that is not wanted: what one of them decided would be there twice. To keep both, "
            "give one of them another table.",
        )


def require_no_older_copy(marker: TableMarker, since: Position) -> None:
    """Raise Refused if a backup or a standby replaced the database during this run: the next batch would hide the loss."""
    if marker.position < since:
        raise Refused(
            f"Table {marker.table_name!r} stands at position {marker.position} of the ledger, but this run published there up to "
            f"position {since}: an older copy is in its place.",
            remedy="Put the newest copy back and start again. To go on without the rows that are missing, "
            "give the sink another name and another table.",
        )


def _require_no_older_generation(marker: TableMarker, publication: Publication) -> None:
    """Raise LedgerMismatch for a publication older than the marker: another ledger's, or of a zombie that is not fenced."""
    if marker.generation is not None and publication.generation < marker.generation:
        raise LedgerMismatch(
            f"Generation {publication.generation} publishes position {publication.position}, but table {marker.table_name!r} "
            f"was last filled by generation {marker.generation} at position {marker.position}.",
            remedy="Stop the older run. If another ledger filled this table, restore that one, or give the sink another name and "
            "another table.",
        )


def other_table(marker: TableMarker, table: str) -> LedgerMismatch:
    """Return the error for a sink that published into another table before: its decided batches are there, not here."""
    return LedgerMismatch(
        f"Sink {marker.sink!r} of pipeline {marker.pipeline!r} filled table {marker.table_name!r} so far, expected {table!r}.",
        remedy="Name that table again, or give the sink another name: the batches so far stay in the old table.",
    )


def _require_all(loaded: Loaded, publication: Publication, target: Target) -> None:
    decided = publication.totals.rows
    if loaded.rows != decided:
        raise ContentConflict(
            f"Batch {publication.batch.batch_id} has {decided} rows, but table {target.table!r} took {loaded.rows}.",
            remedy="Look for a trigger or a view that drops rows, remove it and start again: the batch is published then.",
        )


def _advanced(marker: TableMarker, publication: Publication, loaded: Loaded, *, write: str) -> TableMarker:
    batch = Totals(rows=publication.totals.rows, digest=publication.totals.digest)
    fresh = write == "replace"
    return replace(
        marker,
        write=write,
        ledger_id=publication.ledger_id,
        position=publication.position,
        generation=publication.generation,
        query_id=publication.batch.query_id,
        batch_id=publication.batch.batch_id,
        offsets=offsets_json(publication.batch),
        schema=publication.schema if publication.staged or fresh else marker.schema,
        decided=marker.decided + batch,
        before=Totals() if fresh else marker.before,
        after=batch if fresh else minus(marker.after + batch, loaded.displaced),
    )


# --- wider types


def _rehashed(
    marker: TableMarker, publication: Publication, target: Target, read: Callable[["pa.Schema"], Iterator["pa.RecordBatch"]]
) -> TableMarker:
    """Return the marker with the sums of the rows that are there as the publication's types hash them, where these are wider.

    One scan gives both sums, so that what moves from one to the other is what was published and nothing else. Raises Refused.
    """
    if marker.schema is None or publication.schema is None:
        return marker
    old = arrow_schema(marker.schema)
    new = widened(old, arrow_schema(publication.schema))
    if new is old:
        return marker
    narrow, wide = Totals(), Totals()
    with unreadable_refused(marker):
        for batch in read(old):
            narrow += _totals(batch, target.row_digest)
            wide += _totals(batch.cast(new), target.row_digest)
    require_unchanged(marker, narrow, then="The batch is published then.")
    return replace(marker, after=minus(marker.after + wide, narrow), is_widening=False)


def require_unchanged(marker: TableMarker, found: Totals, *, then: str) -> None:
    """Raise Refused if `found`, what the table holds, is not what `verify` demands: it could not be proved with wider types."""
    if found != marker.shown:
        raise _changed(marker, f"it holds {_counted(found)}, expected {_counted(marker.shown)}", then)


def _counted(totals: Totals) -> str:
    return f"{totals.rows} rows with digest {totals.digest:016x}"


@contextmanager
def unreadable_refused(marker: TableMarker) -> Iterator[None]:
    """Re-raise NotStoredError from the body as Refused: only rows that Penstock wrote can be counted with wider types."""
    try:
        yield
    except NotStoredError as cause:
        raise _changed(marker, f"{cause}", "") from cause


def _changed(marker: TableMarker, what: str, then: str) -> Refused:
    return Refused(
        f"Somebody has changed rows of table {marker.table_name!r}, which are to be counted with wider types: {what}.",
        remedy=f"Run `penstock verify`, put the rows right, and start again. {then}".rstrip(),
    )


# --- counting the rows of a table


def totals_of(batches: Iterator["pa.RecordBatch"], row_digest: RowDigest) -> Totals:
    """Return the number of rows and their digest."""
    return sum((_totals(batch, row_digest) for batch in batches), Totals())


def _totals(batch: "pa.RecordBatch", row_digest: RowDigest) -> Totals:
    return Totals(rows=batch.num_rows, digest=digest(row_hashes(batch, row_digest)))


def totals_under_key(batches: Iterator["pa.RecordBatch"], row_digest: RowDigest, *, table: str) -> Totals:
    """Return the totals of rows under keys of a batch. Raise PublishFailed if Penstock cannot have written one of them."""
    with rows_under_key(table):
        return totals_of(batches, row_digest)


@contextmanager
def rows_under_key(table: str) -> Iterator[None]:
    """Re-raise NotStoredError from the body, which reads rows under keys of a batch, as PublishFailed."""
    try:
        yield
    except NotStoredError as cause:
        raise PublishFailed(
            f"Table {table!r} holds a row under a key of this batch that Penstock did not write: {cause}.",
            remedy="Correct or delete that row, then start again: the batch is published then.",
        ) from cause
