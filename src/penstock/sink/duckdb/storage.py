"""How Arrow values are stored in DuckDB: unchanged and returned bit by bit, except for two types that DuckDB lacks.

A day-time interval is a BIGINT of microseconds, because DuckDB's intervals have months; a column of NULLs (`void`) is an
INTEGER.
"""

from collections.abc import Callable

import pyarrow as pa
import pyarrow.types as is_

from penstock.errors import Usage
from penstock.sink.table.target import NotStoredError


def stored_type(kind: "pa.DataType") -> "pa.DataType":
    """Return DuckDB's type for `kind`, in which struct fields may be NULL. Raise TypeError for a NULL type inside another one."""
    return pa.int32() if is_.is_null(kind) else _inside(kind)


def stored_schema(schema: "pa.Schema") -> "pa.Schema":
    """Return the schema with `stored_type` of every column. Raise Usage, naming the column."""
    return pa.schema([pa.field(field.name, _stored_field(field)) for field in schema])


def stored(batch: "pa.RecordBatch") -> "pa.RecordBatch":
    """Convert the rows to the types that DuckDB stores."""
    schema = stored_schema(batch.schema)
    columns = [_cast(column, field.type) for column, field in zip(batch.columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def restored(column: "pa.Array", kind: "pa.DataType") -> "pa.Array":
    """Convert a column of DuckDB back to `kind`, from which it was stored. Raise NotStoredError."""
    if is_.is_null(kind):
        if column.null_count < len(column):
            raise NotStoredError("expected nothing but NULL, found a value")
        return pa.nulls(len(column))
    return _cast(_cast(column, stored_type(kind)), _nullable(kind))


def _cast(column: "pa.Array", kind: "pa.DataType") -> "pa.Array":
    return column if column.type.equals(kind) else column.cast(kind)


def _stored_field(field: "pa.Field") -> "pa.DataType":
    try:
        return stored_type(field.type)
    except TypeError as cause:
        raise Usage(f"Column {field.name!r} holds {cause}.", remedy="Leave it out in the transform, or cast it.") from cause


def _inside(kind: "pa.DataType") -> "pa.DataType":
    if is_.is_null(kind):
        raise TypeError("a list, map or struct of nothing but NULL (void), which DuckDB lacks")
    if is_.is_duration(kind):
        return pa.int64()
    return _rebuilt(kind, _inside)


def _nullable(kind: "pa.DataType") -> "pa.DataType":
    return _rebuilt(kind, _nullable)


def _rebuilt(kind: "pa.DataType", part: Callable[["pa.DataType"], "pa.DataType"]) -> "pa.DataType":
    if is_.is_struct(kind):
        return pa.struct([pa.field(field.name, part(field.type)) for field in kind])
    if is_.is_map(kind):
        return pa.map_(part(kind.key_type), part(kind.item_type))
    if is_.is_list(kind):
        return pa.list_(part(kind.value_type))
    return kind
