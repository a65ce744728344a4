"""Row validator of the Cassandra sink: refuses, in the task, rows that a table cannot store."""

from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from penstock.sink.table.nested import to_json
from penstock.sink.table.row_validator import YEARS_IN_MICROSECONDS, Limits, TableRowValidator

MAX_ROW_BYTES = 8_000_000
"""Half of what a server accepts by default."""
MAX_KEY_BYTES = 65_535
_OVERHEAD_BYTES = 32
"""What each column of a key adds to its text, at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowValidator(TableRowValidator):
    """`TableRowValidator` for Cassandra. `key`: columns of the primary key; `lone`: the partition key, if it is one column."""

    key: tuple[str, ...]
    lone: str | None

    def __call__(self, rows: "pa.RecordBatch") -> None:
        """Refuse what `TableRowValidator` refuses, and keys that are too long."""
        super(RowValidator, self).__call__(rows)
        sized = [rows.column(name) for name in self.key if _is_sized(rows.column(name))]
        longest = sum(pc.max(pc.binary_length(column)).as_py() or 0 for column in sized)
        limit = MAX_KEY_BYTES - _OVERHEAD_BYTES * len(self.key)
        if longest > limit:
            raise self.refusal(
                f"a key of up to {longest} bytes, where Cassandra takes {limit}", "Use a shorter key, a hash of it, say."
            )

    def folded(self, name: str) -> str:
        return name

    def limits(self, kind: "pa.DataType") -> Limits | None:
        return YEARS_IN_MICROSECONDS if pa.types.is_timestamp(kind) else None

    def check_more(self, name: str, column: "pa.Array") -> None:
        """Refuse an empty partition key, parts of milliseconds, and values that have no JSON."""
        if name == self.lone and _is_sized(column) and 0 in pc.unique(pc.binary_length(column)).to_pylist():
            raise self.refusal(f"an empty value in column {name!r}, the partition key", "Filter such rows, or fill the column.")
        if pa.types.is_timestamp(column.type) and _has_parts_of_milliseconds(column):
            raise self.refusal(
                f"parts of a millisecond in column {name!r}, which Cassandra's timestamp has not",
                f"Use date_trunc('MILLISECOND', {name}), or keep unix_micros({name}).",
            )
        if pa.types.is_nested(column.type):
            self.require_json(name, partial(to_json, column))


def _is_sized(column: "pa.Array") -> bool:
    kind = column.type
    texts = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    return bool(texts or pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _has_parts_of_milliseconds(column: "pa.Array") -> bool:
    micros = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
    return bool(pc.any(pc.not_equal(pc.multiply(pc.divide(micros, 1000), 1000), micros)).as_py())
