"""Rows that delete, while they are staged.

For a table only the key of each is stored, so nothing else of it has to fit the table.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.deletes import split_deletes, with_deletes
from penstock.core.model import RowDigest
from penstock.core.row_hash import row_hashes


class StagedDeletes(Protocol):
    """How a sink stages rows with the column of `core.deletes`. Picklable."""

    def schema_of(self, rows: "pa.Schema") -> "pa.Schema":
        """Return the schema of a piece of such rows."""
        ...

    def checked(self, rows: "pa.RecordBatch") -> "Iterator[pa.RecordBatch]":
        """Yield what the target has to take, without the column."""
        ...

    def bare(self, rows: "pa.RecordBatch", hashes: "pa.UInt64Array") -> "tuple[pa.RecordBatch, pa.UInt64Array]":
        """Return what a piece holds of the rows, and the hashes that are decided."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletesByKey:
    """How rows with the column of `core.deletes` are staged for a table. `key`: its key, as the settings name it."""

    key: tuple[str, ...]
    row_digest: RowDigest

    def schema_of(self, rows: "pa.Schema") -> "pa.Schema":
        return rows

    def checked(self, rows: "pa.RecordBatch") -> "Iterator[pa.RecordBatch]":
        """Yield what the table has to take: rows that do not delete, and the keys of those that do."""
        plain, deletes = split_deletes(rows)
        for part in (plain.filter(pc.invert(deletes)), plain.filter(deletes).select(self._key_in(plain))):
            if part.num_rows:
                yield part

    def bare(self, rows: "pa.RecordBatch", hashes: "pa.UInt64Array") -> "tuple[pa.RecordBatch, pa.UInt64Array]":
        """Return the rows and their hashes; where a row deletes, both are of its key alone, and its other columns are NULL."""
        plain, deletes = split_deletes(rows)
        if not pc.any(deletes).as_py():
            return rows, hashes
        key, kept = self._key_in(plain), pc.if_else(deletes, None, pa.array(np.arange(len(plain), dtype=np.int64)))
        columns = [
            column if name in key else column.take(kept) for name, column in zip(plain.schema.names, plain.columns, strict=True)
        ]
        staged = pa.RecordBatch.from_arrays(columns, schema=plain.schema)
        names = plain.schema.names  # a column that is NULL does not count, unless one after it has its name in another case
        is_distinct = len({name.lower() for name in names}) == len(names)
        keys = row_hashes(plain.select(key) if is_distinct else staged, self.row_digest)
        return with_deletes(staged, deletes), pc.if_else(deletes, keys, hashes)

    def _key_in(self, rows: "pa.RecordBatch") -> list[str]:
        """Return the key's columns in the order of the rows, on which the hash depends. Some databases ignore case."""
        folded = {name.lower() for name in self.key}
        exact = [name for name in rows.schema.names if name in self.key]
        return exact if len(exact) == len(self.key) else [name for name in rows.schema.names if name.lower() in folded]


def runs_of(batches: "Iterator[pa.RecordBatch]") -> "Iterator[tuple[bool, pa.RecordBatch]]":
    """Yield staged rows in their order, without the column, in runs of rows that all delete (True) or all do not."""
    for batch in batches:
        rows, deletes = split_deletes(batch)
        flags = np.asarray(deletes)
        bounds = [0, *(np.flatnonzero(flags[1:] != flags[:-1]) + 1).tolist(), len(flags)]
        for start, stop in pairwise(bounds):
            if stop > start:
                yield bool(flags[start]), rows.slice(start, stop - start)
