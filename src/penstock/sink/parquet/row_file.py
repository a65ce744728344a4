"""`RowFile`, a Parquet file whose columns are found as the readers of its table find them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.protocols import SCHEMA_KEY
from penstock.sink.parquet.encoding import is_text
from penstock.sink.parquet.field_ids import columns_by_number, is_numbered

_BATCH_ROWS = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class RowFile:
    """One Parquet file of a table. All methods raise pa.ArrowException and OSError for a file that cannot be read.

    `columns`: the table's names of the columns that readers find in it, each with the file's own name. `is_numbered`: they are
    found by number, so a column that is not among them is NULL for readers.
    """

    parquet: "pq.ParquetFile"
    columns: Mapping[str, str]
    is_numbered: bool

    @staticmethod
    def of(parquet: "pq.ParquetFile", field_ids: Mapping[str, int] | None) -> "RowFile":
        """Return the file of a table that numbers its columns so, None for one whose readers go by names."""
        there = parquet.schema_arrow
        if field_ids is None or not is_numbered(there):
            return RowFile(parquet=parquet, columns={name: name for name in there.names}, is_numbered=False)
        return RowFile(parquet=parquet, columns=columns_by_number(there, field_ids), is_numbered=True)

    def batches(self, names: Sequence[str] | None = None) -> Iterator["pa.RecordBatch"]:
        """Yield the rows in their order, with those columns under the table's names, all that readers find by default."""
        stored = None if names is None else [self.columns[name] for name in names]
        known = {own: name for name, own in self.columns.items()}
        for batch in self.parquet.iter_batches(_BATCH_ROWS, columns=stored, use_threads=False):
            there = [name for name in batch.schema.names if name in known]
            yield batch.select(there).rename_columns([known[name] for name in there])

    def are_null(self, names: Sequence[str]) -> bool:
        """Return whether these columns have no value."""
        stored = [self.columns[name] for name in names]
        found = self.parquet.read(columns=stored, use_threads=False) if stored else None
        return found is None or all(found.column(name).null_count == found.num_rows for name in stored)


_CODED_BYTES = 4
"""Bytes a value of a column chunk, before compression, up to which its values are codes of a dictionary and not written out."""


def opened_for_hashing(file: BinaryIO) -> "pq.ParquetFile":
    """Open a file such that texts which it stores by a dictionary come so: their hash needs none of them written out.

    Raises pa.ArrowException and OSError for one that cannot be read.
    """
    parquet = opened(file)
    texts = [field.name for field in parquet.schema_arrow if is_text(field.type)]
    if not texts or parquet.metadata.num_row_groups == 0:
        return parquet
    # `column` below ends the process on a damaged footer (Arrow 26: it throws where nothing catches); reading only raises.
    next(parquet.iter_batches(1, row_groups=[0], columns=texts, use_threads=False), None)
    first = parquet.metadata.row_group(0)
    chunks = (first.column(at) for at in range(len(parquet.schema)) if parquet.schema.column(at).path in texts)
    coded = [chunk.path_in_schema for chunk in chunks if _is_coded(chunk)]
    if not coded:
        return parquet
    return pq.ParquetFile(file, metadata=parquet.metadata, read_dictionary=coded, coerce_int96_timestamp_unit="us")


def _is_coded(chunk: "pq.ColumnChunkMetaData") -> bool:
    return bool(chunk.has_dictionary_page and chunk.total_uncompressed_size <= _CODED_BYTES * chunk.num_values)


def opened(file: BinaryIO) -> "pq.ParquetFile":
    """Open a file such that timestamps of INT96, as older writers have them, keep their range."""
    return pq.ParquetFile(file, coerce_int96_timestamp_unit="us")


def own_schema(parquet: "pq.ParquetFile") -> str | None:
    """Return Spark's schema of the rows, as the footer has it; None for a file that Penstock did not write."""
    text = (parquet.metadata.metadata or {}).get(SCHEMA_KEY)
    return None if text is None else text.decode()
