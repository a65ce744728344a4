"""Loading of batches whose rows the driver compares with those of the table first: for `history` and `update_when`.

The table's rows under keys of the batch are read and locked, what is to be written is computed from both, and is written by
`upsert`. The driver holds the batch in memory, and those rows of the table.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.condition_value import bound_condition, condition_holds
from penstock.core.deletes import with_deletes
from penstock.core.faults import FaultPoint
from penstock.core.model import Publication, RowDigest, Totals
from penstock.core.row_hash import digest, row_hashes
from penstock.core.update_condition import UpdateCondition, parse_condition
from penstock.errors import Usage
from penstock.sink.table.history import (
    VALID_FROM,
    Batch,
    Codes,
    Flags,
    changed_versions,
    key_codes,
    named_in,
    split_pieces,
    times_rank,
    with_history,
)
from penstock.sink.table.marker import minus
from penstock.sink.table.publication import Loaded, rows_under_key
from penstock.sink.table.target import Target

COMPARE = FaultPoint("compare.read", "The rows of a table under the keys of a decided batch are read, to compare them.")

_BATCH_ROWS = 20_000

ReadsThere: TypeAlias = "Callable[[pa.Table, Target], Iterator[pa.RecordBatch]]"
"""Yields the table's rows under the keys of some rows, each of which comes once, and keeps others from changing them.

If these rows have the column `valid_from`, versions may be left out that ended before it. The target's `key` is theirs.
"""
Writes: TypeAlias = "Callable[[Iterator[pa.RecordBatch], Target], Loaded]"
"""Writes rows as `SqlSink._write` does."""


def require_compared(write: str, *, history: bool, update_when: str | None, compares: bool) -> UpdateCondition | None:
    """Return the condition, None if there is none. Raise Usage for settings that do not go together."""
    name = "history" if history else "update_when"
    if not history and update_when is None:
        return None
    if not compares:
        raise Usage(f"`{name}` is for tables of other kinds.", remedy="Leave it out.")
    if write != "upsert":
        raise Usage(f"`{name}` is for `write: upsert`.", remedy="Set it, with a key, or leave `" + name + "` out.")
    if history and update_when is not None:
        raise Usage("`update_when` is given, and `history` as well.", remedy="Leave it out: every version of a row stays.")
    return None if update_when is None else parse_condition(update_when)


def require_not_widened(schema_changes: str) -> None:
    """Raise Usage for `schema_changes: widen` of a table with history, whose old versions nobody counts with wider types."""
    if schema_changes == "widen":
        raise Usage("`schema_changes: widen` is not for tables with `history`.", remedy="Write `schema_changes: add`.")


class WritesRows(Protocol):
    """How rows get into a table: a `Target`, or a `WriteMode` of a table in an open format."""

    @property
    def write(self) -> str: ...
    @property
    def key(self) -> tuple[str, ...]: ...
    @property
    def row_key(self) -> tuple[str, ...]: ...
    @property
    def deletes(self) -> bool: ...
    @property
    def sequence_by(self) -> str | None: ...
    @property
    def update_when(self) -> UpdateCondition | None: ...
    @property
    def keeps_history(self) -> bool: ...


def described_write(target: WritesRows) -> str:
    """Describe for people how rows get into the table."""
    if target.keeps_history:
        order = "the stream" if target.sequence_by is None else target.sequence_by
        return f"each version by {', '.join(target.row_key)}, in the order of {order}"
    how = f"{target.write} or delete" if target.deletes else target.write
    how += f" by {', '.join(target.key)}" if target.key else ""
    how += "" if target.sequence_by is None else f", the newest by {target.sequence_by}"
    return how if target.update_when is None else f"{how}, if {target.update_when.text}"


def table_columns(rows: "pa.Schema", target: Target) -> "pa.Schema":
    """Return the columns that the table has for rows with these. Raise Usage for names that are taken."""
    return with_history(rows, target.sequence_by) if target.keeps_history else rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """Rows that are to be written by upsert; `deletes` says which of them delete."""

    rows: "pa.Table"
    deletes: Flags

    def batches(self, *, has_deletes: bool) -> "Iterator[pa.RecordBatch]":
        start = 0
        for batch in self.rows.to_batches(max_chunksize=_BATCH_ROWS):
            flags = self.deletes[start : start + batch.num_rows]
            yield with_deletes(batch, pa.array(flags)) if has_deletes else batch
            start += batch.num_rows

    def totals(self, row_digest: RowDigest) -> Totals:
        return Totals(rows=len(self.rows), digest=digest(row_hashes(self.rows, row_digest)))


def load_compared(
    pieces: "Sequence[pa.RecordBatch]",
    rows: "pa.Schema",
    publication: Publication,
    target: Target,
    *,
    read: ReadsThere,
    write: Writes,
) -> Loaded:
    """Compare the rows of a decided batch with the table's, and write what is to change. `rows`: the schema of the batch."""
    if target.keeps_history:
        written = _versions(pieces, rows, publication, target, read)
        upsert = replace(target, write="upsert", deletes=False, sequence_by=None)
    else:
        written = _updates(pieces, rows, target, read)
        upsert = replace(target, update_when=None)
    loaded = Loaded(rows=0, displaced=Totals())
    if len(written.rows):
        loaded = write(written.batches(has_deletes=upsert.deletes), upsert)
    staged, decided = sum(piece.num_rows for piece in pieces), publication.totals
    kept = written.totals(target.row_digest)
    displaced = minus(Totals(rows=decided.rows, digest=decided.digest) + loaded.displaced, kept)
    return Loaded(rows=staged - kept.rows + loaded.rows, displaced=displaced)


def _versions(
    pieces: "Sequence[pa.RecordBatch]", rows: "pa.Schema", publication: Publication, target: Target, read: ReadsThere
) -> Written:
    batch = Batch.of(pieces, rows, like=target, position=publication.position, has_deletes=target.deletes)
    earliest = batch.earliest()
    compared = [*batch.key, *(() if pa.types.is_string(batch.times.type) else (VALID_FROM,))]
    schema = table_columns(rows, target)
    changed = changed_versions(batch, _there(earliest.select(compared), schema, target, read), target.row_digest)
    return Written(rows=changed, deletes=np.zeros(len(changed), np.bool_))


def _updates(pieces: "Sequence[pa.RecordBatch]", rows: "pa.Schema", target: Target, read: ReadsThere) -> Written:
    condition = target.update_when
    assert condition is not None, "it has one, or keeps history"
    plain, deletes = split_pieces(pieces, rows, has_deletes=target.deletes)
    chosen = chosen_rows(plain, target)
    new, deleting = plain.take(pa.array(chosen)), deletes[chosen]
    key = [named_in(name, rows) for name in target.key]
    there = _there(new.select(key), rows, target, read)
    stays = updated(bound_condition(condition, rows), there, new, key) | deleting
    return Written(rows=new.filter(pa.array(stays)), deletes=deleting[stays])


def _there(keys: "pa.Table", schema: "pa.Schema", target: Target, read: ReadsThere) -> "pa.Table":
    of_rows = replace(target, write="upsert", key=target.row_key, deletes=False, sequence_by=None, update_when=None)
    with rows_under_key(target.table), COMPARE.around():
        found = list(read(keys, of_rows)) if len(keys) else []
    return pa.Table.from_batches([batch.cast(schema) for batch in found], schema) if found else schema.empty_table()


def chosen_rows(rows: "pa.Table", target: Target) -> Codes:
    """Return the number of the row that counts for each key: the last one, or the newest by `sequence_by`."""
    if not len(rows):
        return np.zeros(0, np.int64)
    keys = key_codes([rows.column(named_in(name, rows.schema)) for name in target.key])
    numbers = np.arange(len(rows))
    ranks = numbers if target.sequence_by is None else times_rank(rows.column(named_in(target.sequence_by, rows.schema)))
    order = np.lexsort((numbers, ranks, keys))
    is_last = np.append(keys[order][1:] != keys[order][:-1], True)
    return np.sort(order[is_last])


def updated(condition: UpdateCondition, there: "pa.Table", new: "pa.Table", key: Sequence[str]) -> Flags:
    """Return which of the `new` rows are written: `there` has no row with their key, or the condition holds for it and them.

    No two rows of one table have the same key.
    """
    if not len(there) or not len(new):
        return np.ones(len(new), np.bool_)
    codes = key_codes([pa.chunked_array([*there.column(name).chunks, *new.column(name).chunks]) for name in key])
    place = np.full(int(codes.max()) + 1, -1, np.int64)
    place[codes[: len(there)]] = np.arange(len(there))
    old = place[codes[len(there) :]]
    met = np.flatnonzero(old >= 0)
    written = np.ones(len(new), np.bool_)
    holds = condition_holds(condition, there.take(pa.array(old[met])), new.take(pa.array(met)))
    written[met] = np.asarray(pc.fill_null(holds, fill_value=False))
    return written
