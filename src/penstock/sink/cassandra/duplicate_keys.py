"""Finds rows of one batch with the same key: Cassandra would mix them, column by column, at one time stamp."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from penstock.core.deletes import split_deletes
from penstock.core.model import DIGEST_MODULUS, Totals
from penstock.core.row_hash import row_hashes
from penstock.errors import ContentConflict
from penstock.sink.table.target import Target

Rows = Callable[[], Iterator["pa.RecordBatch"]]
"""Yields all rows of a batch in their frozen order, from the start at each call."""


Numbers: TypeAlias = "np.ndarray[tuple[int], np.dtype[np.int64]]"
"""Places of rows among others, ascending."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SupersededRows:
    """Rows of a batch that a later row with the same key supersedes.

    `numbers`: their places in the batch. `totals`: their count and digest. `rows`: the number of all rows of the batch.
    """

    rows: int
    numbers: Numbers
    totals: Totals


def repeated_in(rows: Rows, target: Target) -> SupersededRows:
    """Find the superseded rows, whether they delete or not. Needs memory for 8 bytes a row and for keys that may be repeated."""
    hashes = [np.asarray(row_hashes(batch.select(target.key), target.row_digest)) for batch in rows()]
    every = np.concatenate(hashes) if hashes else np.empty(0, np.uint64)
    values, counts = np.unique(every, return_counts=True)
    suspects = np.flatnonzero(np.isin(every, values[counts > 1]))
    newest: dict[tuple[object, ...], tuple[int, int]] = {}
    superseded = []
    for number, values_of_key, row_hash in _looked_up(rows, suspects, target) if len(suspects) else ():
        if values_of_key in newest:
            superseded.append(newest[values_of_key])
        newest[values_of_key] = (number, row_hash)
    digest = sum(row_hash for _, row_hash in superseded) % DIGEST_MODULUS
    numbers = np.array(sorted(number for number, _ in superseded), np.int64)
    return SupersededRows(rows=len(every), numbers=numbers, totals=Totals(rows=len(superseded), digest=digest))


def _looked_up(rows: Rows, numbers: Numbers, target: Target) -> Iterator[tuple[int, tuple[object, ...], int]]:
    """Yield number, key and hash of the rows with these numbers."""
    start = 0
    for batch in rows():
        here = numbers[(numbers >= start) & (numbers < start + batch.num_rows)]
        chosen = batch.take(pa.array(here - start))
        keys = zip(*(chosen.column(name).to_pylist() for name in target.key), strict=True)
        plain = split_deletes(chosen)[0] if target.deletes else chosen
        yield from zip(here.tolist(), keys, row_hashes(plain, target.row_digest).to_pylist(), strict=True)
        start += batch.num_rows


def without(rows: Iterator["pa.RecordBatch"], superseded: Numbers) -> Iterator["pa.RecordBatch"]:
    """Yield the rows that are not superseded."""
    start = 0
    for batch in rows:
        stop = start + batch.num_rows
        here = superseded[(superseded >= start) & (superseded < stop)]
        if len(here):
            kept = np.ones(batch.num_rows, np.bool_)
            kept[here - start] = False
            yield batch.filter(pa.array(kept))
        else:
            yield batch
        start = stop


def require_unique(repeated: SupersededRows, target: Target, batch_id: int) -> None:
    """Raise ContentConflict if rows are to be appended and some would replace others."""
    if target.write == "append" and repeated.totals.rows:
        raise ContentConflict(
            f"Batch {batch_id} has {repeated.totals.rows} rows whose key ({', '.join(target.key)}) comes again in it, so table "
            f"{target.table!r} could not hold them all.",
            remedy="Set `write: upsert` if the last one counts, or give the sink another name and a key that tells them apart; "
            "then start again.",
        )
