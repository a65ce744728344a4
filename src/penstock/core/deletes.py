"""How rows that delete travel: with one more column, behind those of the rows, which says of each row whether it deletes.

The staging pass computes it, the spool keeps it, and the sink takes it apart when it applies the batch. It is no column of the
table, and the hashes of rows do not cover it.
"""

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

_NAME = "penstock_deletes"


def deletes_column(names: Iterable[str]) -> str:
    """Return the name of the column beside columns `names`, which no database takes for one of these."""
    name, taken = _NAME, {column.lower() for column in names}
    while name in taken:
        name += "_"
    return name


def schema_with_deletes(rows: "pa.Schema") -> "pa.Schema":
    """Return the schema of such rows. Every column may be NULL: of a row that deletes, the key alone is staged."""
    fields = [pa.field(field.name, field.type, nullable=True, metadata=field.metadata) for field in rows]
    return pa.schema([*fields, pa.field(deletes_column(rows.names), pa.bool_())], metadata=rows.metadata)


def with_deletes(rows: "pa.RecordBatch", deletes: "pa.BooleanArray") -> "pa.RecordBatch":
    """Return the rows with the column; `deletes` holds no NULL."""
    return pa.RecordBatch.from_arrays([*rows.columns, deletes], schema=schema_with_deletes(rows.schema))


def split_deletes(rows: "pa.RecordBatch") -> "tuple[pa.RecordBatch, pa.BooleanArray]":
    """Return the rows without the column, and the column."""
    return rows.select(rows.schema.names[:-1]), rows.column(rows.num_columns - 1)


def without_deleting(rows: "pa.RecordBatch") -> "pa.RecordBatch":
    """Return the rows that do not delete, without the column."""
    plain, deletes = split_deletes(rows)
    return plain.filter(pc.invert(deletes))
