"""Reads a published file back as the rows that were decided, with its columns in their order, and hashes them."""

from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.core.model import RowDigest, Totals
from penstock.core.row_hash import digest, row_hashes
from penstock.protocols import SCHEMA_KEY
from penstock.sink.parquet.hive import PartitionColumn, Value, unescape
from penstock.sink.parquet.part_file import stored_schema
from penstock.spark.schema import arrow_schema

_BATCH_ROWS = 1 << 16


def read_content(file: BinaryIO, *, name: str, schema: str, row_digest: RowDigest) -> Totals:
    """Return the rows and the digest of a whole file; `name` is relative to the root and holds the partition values.

    `schema` is Spark's JSON of the rows. A schema in the file's footer takes precedence: the file may be of an unknown batch.
    Raises ValueError with the reason for a file that does not hold such rows, pa.ArrowException and OSError for one that cannot
    be read.
    """
    parquet = pq.ParquetFile(file, coerce_int96_timestamp_unit="us")
    rows = arrow_schema(own_schema(parquet) or schema)
    values = _partition_values(name, rows)
    missing = [column for column in rows.names if column not in values and column not in parquet.schema_arrow.names]
    surplus = [column for column in parquet.schema_arrow.names if column not in rows.names or column in values]
    if missing or surplus:
        raise ValueError(f"its columns are {', '.join(parquet.schema_arrow.names)}, expected {', '.join(rows.names)}")
    found = Totals()
    for batch in parquet.iter_batches(_BATCH_ROWS, use_threads=False):
        found += Totals(rows=batch.num_rows, digest=digest(row_hashes(_restored(batch, rows, values), row_digest)))
    return found


def read_table(file: BinaryIO, *, name: str, schema: str) -> "pa.Table":
    """Return all rows of a file with the columns of `schema`: a later column is null, a removed one is left out.

    Raises ValueError, pa.ArrowException and OSError as `read_content`.
    """
    parquet = pq.ParquetFile(file, coerce_int96_timestamp_unit="us")
    values = _partition_values(name, arrow_schema(own_schema(parquet) or schema))
    found = parquet.read(use_threads=False)
    wanted = table_schema(schema)
    columns = [_column(found, field, values) for field in wanted]
    return pa.Table.from_arrays(columns, schema=wanted)


def table_schema(schema: str) -> "pa.Schema":
    """Return the columns of rows of Spark's `schema` as they are read back: all nullable, as in every Parquet file of Spark's."""
    rows = arrow_schema(schema)
    kinds = [
        stored.type if pa.types.is_nested(field.type) else field.type
        for field, stored in zip(rows, stored_schema(rows), strict=True)
    ]
    return pa.schema(list(zip(rows.names, kinds, strict=True)))


def own_schema(parquet: "pq.ParquetFile") -> str | None:
    """Return Spark's schema of the rows, as the footer has it; None for a file that Penstock did not write."""
    text = (parquet.metadata.metadata or {}).get(SCHEMA_KEY)
    return None if text is None else text.decode()


def _partition_values(name: str, rows: "pa.Schema") -> dict[str, Value]:
    values: dict[str, Value] = {}
    for directory in name.split("/")[:-1]:
        key, equals, text = directory.partition("=")
        column = unescape(key)
        index = rows.get_field_index(unescape(key))
        if not equals or index < 0:
            raise ValueError(f"it lies in the directory {directory!r}, which stands for no value of a column")
        kind = rows.field(index).type
        values[column] = PartitionColumn(name=column, index=index, kind=kind).value_in(text)
    return values


def _column(found: "pa.Table", field: "pa.Field", values: dict[str, Value]) -> "pa.Array | pa.ChunkedArray":
    if field.name in values:
        return pa.repeat(pa.scalar(values[field.name], field.type), found.num_rows)
    if field.name not in found.column_names:
        return pa.nulls(found.num_rows, field.type)
    column = found.column(field.name)
    return column if column.type == field.type else column.cast(field.type)


def _restored(batch: "pa.RecordBatch", rows: "pa.Schema", values: dict[str, Value]) -> "pa.RecordBatch":
    columns = [
        pa.repeat(pa.scalar(values[field.name], field.type), batch.num_rows)
        if field.name in values
        else _as(field.type, batch.column(batch.schema.get_field_index(field.name)))
        for field in rows
    ]
    return pa.RecordBatch.from_arrays(columns, names=rows.names)


def _as(kind: "pa.DataType", column: "pa.Array") -> "pa.Array":
    """Return values as the decided type, if the file stores another one. In nested types nothing that is hashed differs."""
    return column if column.type == kind or pa.types.is_nested(kind) else column.cast(kind)
