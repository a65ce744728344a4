"""How rows that delete travel: with one more column, behind those of the rows, which says of each row whether it deletes.

The staging pass computes this column, the spool keeps it, and the sink takes it off again when it applies the batch. It is no
column of the table, and the hashes of rows do not cover it.
"""

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

_NAME = "penstock_deletes"


def deletes_column(names: Iterable[str]) -> str:
    """Return the column's name, which differs from every name in `names` by more than the case of letters."""
    name, taken = _NAME, {column.lower() for column in names}
    while name in taken:
        name += "_"
    return name


def schema_with_deletes(rows: "pa.Schema") -> "pa.Schema":
    """Return the schema `rows` with the column added. Every column may be NULL: only the key of a row that deletes is staged."""
    fields = [pa.field(field.name, field.type, nullable=True, metadata=field.metadata) for field in rows]
    return pa.schema([*fields, pa.field(deletes_column(rows.names), pa.bool_())], metadata=rows.metadata)


def with_deletes(rows: "pa.RecordBatch", deletes: "pa.BooleanArray") -> "pa.RecordBatch":
    """Return `rows` with the column added. It holds `deletes`, which has no NULL."""
    return pa.RecordBatch.from_arrays([*rows.columns, deletes], schema=schema_with_deletes(rows.schema))


def split_deletes(rows: "pa.RecordBatch") -> "tuple[pa.RecordBatch, pa.BooleanArray]":
    """Split `rows` into the rows without the column, and the column."""
    return rows.select(rows.schema.names[:-1]), rows.column(rows.num_columns - 1)


def without_deleting(rows: "pa.RecordBatch") -> "pa.RecordBatch":
    """Return those of `rows` that do not delete, without the column."""
    plain, deletes = split_deletes(rows)
    return plain.filter(pc.invert(deletes))
