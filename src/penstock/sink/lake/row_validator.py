"""Checks of rows that are written by key, in the tasks and before the decision, without the library of the format."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from penstock.core.condition_value import bound_condition
from penstock.errors import StageFailed, Usage
from penstock.sink.lake.write_mode import WriteMode
from penstock.sink.parquet.layout import source_columns
from penstock.sink.parquet.splitting import Chunk, Splitter, WriteSettings
from penstock.sink.valid_text import require_valid

_NOTHING: Final = "\0"
"""The name of a column added because not all columns may be partition columns. No table has a column of that name."""


def require_mode_columns(rows: "pa.Schema", mode: WriteMode) -> None:
    """Raise Usage unless the rows have the columns by which `mode` compares rows, with values that can be compared."""
    require_key(rows, mode.key)
    if mode.sequence_by is not None:
        require_sequence(rows, mode.sequence_by)
    if mode.update_when is not None:
        bound_condition(mode.update_when, rows)


def require_key(rows: "pa.Schema", key: Sequence[str]) -> None:
    """Raise Usage unless the rows have the key's columns, with values that can be told apart."""
    for name in key:
        kind = _type_of(rows, name, named_by="The key", setting="key")
        if not _is_exact(kind):
            raise Usage(
                f"The key's column {name!r} has the type {kind}, which tells no rows apart.",
                remedy="Cast it in the transform to DECIMAL or STRING, or choose other columns.",
            )


def require_sequence(rows: "pa.Schema", column: str) -> None:
    """Raise Usage unless the rows have the column of `sequence_by`, with values that have an order."""
    kind = _type_of(rows, column, named_by="sequence_by", setting="sequence_by")
    if not _is_exact(kind) or pa.types.is_boolean(kind):
        raise Usage(
            f"The column {column!r} of sequence_by has the type {kind}, which puts rows in no order.",
            remedy="Cast it in the transform to BIGINT, DECIMAL or TIMESTAMP, or choose another column.",
        )


def _type_of(rows: "pa.Schema", column: str, *, named_by: str, setting: str) -> "pa.DataType":
    index = rows.get_field_index(column)
    if index < 0:
        raise Usage(
            f"{named_by} names column {column!r}, but the rows have {', '.join(rows.names)}.",
            remedy=f"Correct `{setting}:` of the sink.",
        )
    return rows.field(index).type


def _is_exact(kind: "pa.DataType") -> bool:
    """Return whether values of the type can be compared, and always equal themselves."""
    return not (pa.types.is_nested(kind) or pa.types.is_floating(kind) or pa.types.is_null(kind))


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyValidator:
    """The check of rows in the tasks; picklable. A decided row that no file can hold would stop the pipeline for good.

    `filled`: the columns in which no row has NULL.
    """

    table: str
    filled: tuple[str, ...]
    files: WriteSettings

    def __call__(self, rows: "pa.RecordBatch") -> None:
        """Raise StageFailed for a null in such a column, a text that is not UTF-8, or a partition value without a directory."""
        require_valid(rows, sink=self.files.sink)
        for name in self.filled:
            if rows.column(rows.schema.get_field_index(name)).null_count:
                raise StageFailed(
                    f"Sink {self.files.sink!r} cannot store these rows in table {self.table!r}: found NULL in column {name!r}, "
                    "which allows none.",
                    remedy="Filter such rows, or fill the column.",
                )
        sources = source_columns(self.files.partition_by, rows.schema.names)
        if sources and set(sources) <= set(rows.schema.names):  # keys to delete have no partition
            self._require_partitions(rows, sources)

    def _require_partitions(self, rows: "pa.RecordBatch", sources: Sequence[str]) -> None:
        values = pa.Table.from_batches([rows]).select(list(sources))
        values = values.append_column(_NOTHING, pa.nulls(len(values)))
        hashes = np.zeros(len(values), np.uint64)
        Splitter(self.files, values.schema).split(Chunk(rows=values, hashes=hashes, accounts=None))
