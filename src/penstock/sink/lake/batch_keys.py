"""The keys of a batch: which of its rows count, where rows of the table can have the same keys, and which have them.

Keys are compared by Arrow's hash join, exactly. Only the columns of the key are in memory for all rows of a batch, or of a file.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.sink.lake.log import KeyRange

Mask: TypeAlias = npt.NDArray[np.bool_]
"""One flag for each row, in the order of the rows."""
Numbers: TypeAlias = npt.NDArray[np.int64]
"""Row numbers, from 0, in ascending order."""

_ROW: Final = "\0row"
"""No column of a table has such a name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchKeys:
    """The distinct keys of a batch of `rows` rows. `table` has each key once, with the number of the row that counts for it."""

    key: tuple[str, ...]
    rows: int
    table: "pa.Table"

    @classmethod
    def of(cls, batches: "Iterable[pa.RecordBatch]", schema: "pa.Schema", key: tuple[str, ...], *, last: bool) -> "BatchKeys":
        """Return the keys of the rows in `batches`, which are read once. Of rows with one key, the `last` or the first counts."""
        keys = _numbered(batches, pa.schema([schema.field(name) for name in key]))
        which = "max" if last else "min"
        grouped = keys.group_by(list(key), use_threads=False).aggregate([(_ROW, which)])
        counted = grouped.column(f"{_ROW}_{which}")
        return cls(key=key, rows=len(keys), table=grouped.select(list(key)).append_column(_ROW, counted))

    def range(self, partition_by: Sequence[str]) -> KeyRange:
        """Return where rows of these keys can be, in a table partitioned by `partition_by`."""
        inside = {name: pc.unique(self.table.column(name)) for name in self.key if name in partition_by}
        others = (name for name in self.key if name not in partition_by and _is_bounded(self.table.column(name).type))
        return KeyRange(partitions=inside, bounds={name: _bounds(self.table.column(name)) for name in others})

    def counted(self) -> Mask:
        """Return which rows of the batch count for their key."""
        mask = np.zeros(self.rows, np.bool_)
        mask[self.table.column(_ROW).to_numpy()] = True
        return mask

    def found_in(self, there: "Iterable[pa.RecordBatch]") -> Numbers:
        """Return which rows of the table have a key of the batch. `there` has their columns of the key."""
        return _semi_join(_numbered(there, self._schema), self.table, self.key)

    def existing_in(self, there: "Iterable[pa.RecordBatch]") -> Numbers:
        """Return which of the batch's rows that count have the key of a row of the table. `there`: as for `found_in`."""
        return _semi_join(self.table, _numbered(there, self._schema), self.key)

    @property
    def _schema(self) -> "pa.Schema":
        return self.table.select(list(self.key)).schema


def _numbered(batches: "Iterable[pa.RecordBatch]", schema: "pa.Schema") -> "pa.Table":
    """Return the columns of `schema`, in its types, with the number of each row."""
    chosen = [batch.select(schema.names) for batch in batches]
    found = pa.Table.from_batches(chosen).cast(schema) if chosen else schema.empty_table()
    return found.append_column(_ROW, pa.array(np.arange(len(found), dtype=np.int64)))


def _semi_join(one: "pa.Table", other: "pa.Table", key: tuple[str, ...]) -> Numbers:
    """Return the numbers of the rows of `one` whose key is in `other`."""
    found = one.join(other.select(list(key)), keys=list(key), join_type="left semi").column(_ROW).to_numpy()
    return np.sort(found)


def _is_bounded(kind: "pa.DataType") -> bool:
    """Return whether all writers record bounds of this type alike, in Arrow's order."""
    return bool(pa.types.is_integer(kind) or pa.types.is_date32(kind) or pa.types.is_string(kind))


def _bounds(column: "pa.ChunkedArray") -> "tuple[pa.Scalar, pa.Scalar]":
    found = pc.min_max(column)
    return found["min"], found["max"]
