"""The keys of a batch: which of its rows count, where rows of the table can have the same keys, and which have them.

Keys are compared by Arrow's hash join, exactly. Only the columns of the key, and the one that says which row is newer, are in
memory for all rows of a batch, or of a file.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.partition_term import source_of
from penstock.sink.lake.log import KeyRange
from penstock.sink.parquet.layout import partitions

Mask: TypeAlias = npt.NDArray[np.bool_]
"""One flag for each row, in the order of the rows."""
Numbers: TypeAlias = npt.NDArray[np.int64]
"""Row numbers, from 0, in ascending order."""

_ROW: Final = "\0row"
_AT: Final = "\0at"
"""No column of a table has such names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Matches:
    """What the keys of a file and of a batch have in common.

    `replaced`: rows of the file that rows of the batch replace. `left_out`: rows of the batch that do not count beside the file.
    """

    replaced: Numbers = field(default_factory=lambda: np.zeros(0, np.int64))
    left_out: Numbers = field(default_factory=lambda: np.zeros(0, np.int64))


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchKeys:
    """The distinct keys of a batch of `rows` rows. `table` has each key once, with the number of the row that counts for it.

    `table` has the columns `also` of the row, too. `there`: the columns of the table's rows that are compared besides the key.
    """

    key: tuple[str, ...]
    rows: int
    table: "pa.Table"
    there: "pa.Schema"

    @classmethod
    def of(
        cls,
        batches: "Iterable[pa.RecordBatch]",
        schema: "pa.Schema",
        key: tuple[str, ...],
        *,
        last: bool,
        also: Sequence[str] = (),
        there: Sequence[str] = (),
    ) -> "BatchKeys":
        """Return the keys of the rows in `batches`, which are read once. Of rows with one key, the `last` or the first counts."""
        found = _numbered(batches, _selected(schema, (*key, *also)))
        which = "max" if last else "min"
        grouped = found.group_by(list(key), use_threads=False).aggregate([(_ROW, which)])
        counted = grouped.column(f"{_ROW}_{which}")
        table = found.take(counted) if also else grouped.select(list(key)).append_column(_ROW, counted)
        return cls(key=key, rows=len(found), table=table, there=_selected(schema, (*key, *there)))

    @classmethod
    def in_sequence(
        cls,
        batches: "Iterable[pa.RecordBatch]",
        schema: "pa.Schema",
        key: tuple[str, ...],
        sequence_by: str,
        *,
        also: Sequence[str] = (),
        there: Sequence[str] = (),
    ) -> "BatchKeys":
        """Return the keys as `of`. Of rows with one key, the last one with the greatest `sequence_by` counts."""
        found = _numbered(batches, _selected(schema, (*key, sequence_by, *also)))
        found = found.sort_by([(sequence_by, "ascending"), (_ROW, "ascending")])
        ranked = found.append_column(_AT, pa.array(np.arange(len(found), dtype=np.int64)))
        newest = ranked.group_by(list(key), use_threads=False).aggregate([(_AT, "max")]).column(f"{_AT}_max")
        return cls(key=key, rows=len(found), table=found.take(newest), there=_selected(schema, (*key, sequence_by, *there)))

    def range(self, partition_by: Sequence[str]) -> KeyRange:
        """Return where rows of these keys can be, in a table partitioned by `partition_by`."""
        known = [name for name in partition_by if source_of(name, self.key) in self.key]
        inside = {each.name: pc.unique(each.values_of(self.table)) for each in partitions(self.table.schema, known)}
        others = (name for name in self.key if name not in partition_by and _is_bounded(self.table.column(name).type))
        return KeyRange(partitions=inside, bounds={name: _bounds(self.table.column(name)) for name in others})

    def counted(self) -> Mask:
        """Return which rows of the batch count for their key."""
        mask = np.zeros(self.rows, np.bool_)
        mask[self.table.column(_ROW).to_numpy()] = True
        return mask

    @property
    def columns(self) -> Sequence[str]:
        """The columns that rows of the table are compared by."""
        return list(self.there.names)

    def found_in(self, there: "Iterable[pa.RecordBatch]") -> Matches:
        """Return the rows of the table with a key of the batch as replaced. `there` has their `columns`."""
        return Matches(replaced=_semi_join(_numbered(there, self.there), self.table, self.key))

    def existing_in(self, there: "Iterable[pa.RecordBatch]") -> Matches:
        """Return the batch's rows that count and have the key of a row of the table as left out. `there`: as for `found_in`."""
        return Matches(left_out=_semi_join(self.table, _numbered(there, self.there), self.key))

    def compared_with(self, there: "Iterable[pa.RecordBatch]", stays: "Callable[[pa.Table, pa.Table, Numbers], Mask]") -> Matches:
        """Return which rows of the table give way to the batch's with their key, and the batch's for which one of them stays.

        `there`: as for `found_in`. `stays` says for pairs of a row of the table and one of the batch, and for the number of the
        latter, whether the former stays.
        """
        found = _numbered(there, self.there)
        counted = self.table.select(list(self.key)).append_column(_AT, pa.array(np.arange(len(self.table), dtype=np.int64)))
        pairs = found.select([*self.key, _ROW]).join(counted, keys=list(self.key), join_type="inner")
        old, new = (table.take(pairs.column(at)) for table, at in ((found, _ROW), (self.table, _AT)))
        numbers = new.column(_ROW).to_numpy()
        kept = stays(old, new, numbers)
        return Matches(replaced=np.sort(old.column(_ROW).to_numpy()[~kept]), left_out=np.unique(numbers[kept]))


def older_than(old: "pa.Table", new: "pa.Table", sequence_by: str) -> Mask:
    """Return which `new` rows are older than the `old` ones. One without a value in `sequence_by` is older than every other."""
    is_older = pc.fill_null(pc.less(new.column(sequence_by), old.column(sequence_by)), fill_value=False)
    return np.asarray(is_older, dtype=np.bool_)


def _selected(schema: "pa.Schema", names: Iterable[str]) -> "pa.Schema":
    return pa.schema([schema.field(name) for name in dict.fromkeys(names)])


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
