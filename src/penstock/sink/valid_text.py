"""Checks that texts are UTF-8, for sinks that have no other check.

Spark's CAST makes a STRING of any bytes, and few readers accept texts that are not UTF-8.
"""

import pyarrow as pa

from penstock.core.model import SinkName
from penstock.errors import StageFailed


def require_valid(rows: "pa.RecordBatch", *, sink: SinkName) -> None:
    """Raise StageFailed, naming the column, if a text is not UTF-8."""
    try:
        rows.validate(full=True)
    except pa.ArrowInvalid as cause:
        raise StageFailed(
            f"Sink {sink!r} cannot store these rows: found damaged values in column {_column_of(rows)!r}: {cause}.",
            remedy="Clean the values in the transform: `decode(column, 'UTF-8')` replaces what is no text, "
            "CAST(column AS BINARY) keeps the bytes.",
        ) from cause


def _column_of(rows: "pa.RecordBatch") -> str:
    for field, column in zip(rows.schema, rows.columns, strict=True):
        try:
            column.validate(full=True)
        except pa.ArrowInvalid:
            return str(field.name)
    return "?"
