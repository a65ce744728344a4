"""Row checks in the tasks for a table of DuckDB."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from penstock.sink.duckdb.storage import stored_type
from penstock.sink.table.row_validator import Limits, TableRowValidator

_RANGE: Final = "what DuckDB holds: its last values are infinity to it, and it cannot show what is before its first ones"
_DAYS: Final = Limits(low=-(1 << 31) + 2, high=(1 << 31) - 2, description=_RANGE)
_MICROSECONDS: Final = Limits(low=-9_223_372_022_400_000_000, high=(1 << 63) - 2, description=_RANGE)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowValidator(TableRowValidator):
    """Refuses what DuckDB cannot store: it keeps every value of its types, except those at the ends of its calendar."""

    def folded(self, name: str) -> str:
        return name.lower()

    def limits(self, kind: "pa.DataType") -> Limits | None:
        """Return the limits of dates and timestamps, which DuckDB stores as the same integers as Arrow."""
        if pa.types.is_timestamp(kind):
            return _MICROSECONDS
        return _DAYS if pa.types.is_date32(kind) else None

    def check_more(self, name: str, column: "pa.Array") -> None:
        """Raise StageFailed for nested values that cannot be stored."""
        try:
            column.cast(stored_type(column.type))
        except (pa.ArrowException, TypeError) as cause:
            raise self.refusal(f"a value in column {name!r} that DuckDB cannot hold: {cause}", "Change it.") from cause
        for inside in _leaves(column) if pa.types.is_nested(column.type) else ():
            limits = self.limits(inside.type)
            if limits is not None:
                self.require_within(name, inside, limits)


def _leaves(column: "pa.Array") -> "Iterator[pa.Array]":
    """Yield the values of a column that are not nested themselves, at any depth."""
    if pa.types.is_map(column.type):
        children = [column.keys, column.items]
    elif pa.types.is_struct(column.type):
        children = column.flatten()
    elif pa.types.is_nested(column.type):
        children = [column.flatten()]
    else:
        yield column
        return
    for child in children:
        yield from _leaves(child)
