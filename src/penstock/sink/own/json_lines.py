"""Converts rows to lines of JSON and back without loss, for targets that store text."""

from collections.abc import Sequence

import pyarrow as pa

from penstock.errors import StageFailed
from penstock.sink.table.nested import from_json, to_json
from penstock.sink.table.target import NotStoredError

_DAMAGE = (pa.ArrowException, ValueError, KeyError, TypeError, ArithmeticError)


def to_json_lines(rows: "pa.RecordBatch") -> list[str]:
    """Return each row as one line, a JSON object with a field for each column.

    NaN, infinities, decimals, dates and times become texts, binary becomes base64.
    """
    lines: list[str] = to_json(pa.StructArray.from_arrays(rows.columns, fields=list(rows.schema)))
    return lines


def from_json_lines(lines: Sequence[str], schema: "pa.Schema") -> "pa.RecordBatch":
    """Return the rows from which `to_json_lines` made `lines`. Raises NotStoredError for other lines."""
    try:
        rows = from_json(list(lines), pa.struct(list(schema)))
        return pa.RecordBatch.from_arrays(rows.flatten(), names=schema.names)
    except _DAMAGE as damage:
        raise NotStoredError(f"expected lines of ({', '.join(schema.names)}): {damage}") from damage


def require_json(rows: "pa.RecordBatch") -> None:
    """Raise StageFailed for rows that have no JSON. For `OwnSink.row_check`: it runs in the tasks, before the decision."""
    try:
        to_json_lines(rows)
    except _DAMAGE as cause:
        raise StageFailed(
            f"A row has no JSON: {cause}.", remedy="Filter such rows in the transform, or cast the column to STRING."
        ) from cause
