"""Validation of rows in the tasks: values that a table of SQLite cannot hold are refused before the decision."""

from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from penstock.sink.sqlite.storage import MAX_INTEGER, stored
from penstock.sink.table.row_validator import YEARS_IN_DAYS, YEARS_IN_MICROSECONDS, Limits, TableRowValidator

_UNSIGNED = Limits(low=0, high=MAX_INTEGER, description="64 bits with sign")


@dataclass(frozen=True, slots=True, kw_only=True)
class RowValidator(TableRowValidator):
    """A `TableRowValidator` for SQLite. Column names are in lower case. `no_nan`: the columns that cannot store NaN."""

    no_nan: frozenset[str]

    def folded(self, name: str) -> str:
        return name.lower()

    def limits(self, kind: "pa.DataType") -> Limits | None:
        if pa.types.is_uint64(kind):
            return _UNSIGNED
        if pa.types.is_timestamp(kind):
            return YEARS_IN_MICROSECONDS
        return YEARS_IN_DAYS if pa.types.is_date32(kind) else None

    def check_more(self, name: str, column: "pa.Array") -> None:
        """Raise StageFailed for NaN in a STRICT table, and for values that have no JSON."""
        if pa.types.is_floating(column.type) and name.lower() in self.no_nan and pc.any(pc.is_nan(column)).as_py():
            raise self.refusal(f"NaN in column {name!r} of a STRICT table", "Turn NaN into NULL, or declare the column ANY.")
        if pa.types.is_nested(column.type):
            self.require_json(name, partial(stored, column))
