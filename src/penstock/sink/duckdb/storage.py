"""How Arrow values are stored in DuckDB: unchanged and returned bit by bit, except for two types that DuckDB lacks.

A day-time interval is a BIGINT of microseconds, because DuckDB's intervals have months; a column of NULLs (`void`) is an
INTEGER. Dates and timestamps at the ends of its calendar are refused in the tasks.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.types as is_

from penstock.errors import Usage
from penstock.sink.table.row_validator import Limits, TableRowValidator
from penstock.sink.table.storage import narrowed_reals
from penstock.sink.table.target import NotStoredError

_RANGE: Final = "what DuckDB holds: its last values are infinity to it, and it cannot show what is before its first ones"
_DAYS: Final = Limits(low=-(1 << 31) + 2, high=(1 << 31) - 2, description=_RANGE)
_MICROSECONDS: Final = Limits(low=-9_223_372_022_400_000_000, high=(1 << 63) - 2, description=_RANGE)


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
    if is_.is_floating(kind):
        return narrowed_reals(column, kind)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class RowValidator(TableRowValidator):
    """Refuses what DuckDB cannot store: it keeps every value of its types, except those at the ends of its calendar."""

    def folded(self, name: str) -> str:
        return name.lower()

    def limits(self, kind: "pa.DataType") -> Limits | None:
        """Return the limits of dates and timestamps, which DuckDB stores as the same integers as Arrow."""
        if is_.is_timestamp(kind):
            return _MICROSECONDS
        return _DAYS if is_.is_date32(kind) else None

    def check_more(self, name: str, column: "pa.Array") -> None:
        try:
            column.cast(stored_type(column.type))
        except (pa.ArrowException, TypeError) as cause:
            raise self.refusal(f"a value in column {name!r} that DuckDB cannot hold: {cause}", "Change it.") from cause
        for inside in _leaves(column) if is_.is_nested(column.type) else ():
            limits = self.limits(inside.type)
            if limits is not None:
                self.require_within(name, inside, limits)


def _leaves(column: "pa.Array") -> "Iterator[pa.Array]":
    """Yield the values of a column that are not nested themselves, at any depth."""
    if is_.is_map(column.type):
        children = [column.keys, column.items]
    elif is_.is_struct(column.type):
        children = column.flatten()
    elif is_.is_nested(column.type):
        children = [column.flatten()]
    else:
        yield column
        return
    for child in children:
        yield from _leaves(child)
