"""What a task refuses before anything is decided: rows that the table could never take would stop the pipeline for good."""

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import StageFailed
from penstock.model import SinkName
from penstock.sink.sqlite.storage import MAX_INTEGER, is_nested, stored

MAX_ROW_BYTES = 1_000_000_000
"""SQLite's own limit for a row."""

_YEARS = "years 0001 to 9999"
_FIRST_MICROSECOND, _LAST_MICROSECOND = -62_135_596_800_000_000, 253_402_300_799_999_999
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """The check of a sink's rows in the tasks; picklable. Column names are in lower case."""

    sink: SinkName
    table: str
    required: frozenset[str]
    no_nan: frozenset[str]

    def __call__(self, rows: "pa.RecordBatch") -> None:
        """Raise StageFailed, naming the column, unless SQLite takes every value."""
        try:
            rows.validate(full=True)
        except pa.ArrowInvalid as cause:
            raise self._refusal(f"damaged values: {cause}", "Clean the values in the transform.") from cause
        for field, column in zip(rows.schema, rows.columns, strict=True):
            self._check(field.name, column)
        if rows.nbytes > MAX_ROW_BYTES:
            self._check_sizes(rows)

    def _check(self, name: str, column: "pa.Array") -> None:
        if column.null_count and name.lower() in self.required:
            raise self._refusal(f"NULL in column {name!r}, which allows none", "Filter such rows, or fill the column.")
        if pa.types.is_floating(column.type) and name.lower() in self.no_nan and pc.any(pc.is_nan(column)).as_py():
            raise self._refusal(f"NaN in column {name!r} of a STRICT table", "Turn NaN into NULL, or declare the column ANY.")
        if is_nested(column.type):
            self._check_nested(name, column)
        elif (limits := _limits(column.type)) is not None:
            self._check_limits(name, column, *limits)

    def _check_nested(self, name: str, column: "pa.Array") -> None:
        try:
            stored(column)
        except (ValueError, OverflowError, TypeError, pa.ArrowException) as cause:
            raise self._refusal(f"a value in column {name!r} that has no JSON: {cause}", "Change it in the transform.") from cause

    def _check_limits(self, name: str, column: "pa.Array", low: int, high: int, said: str) -> None:
        found = pc.min_max(
            column.cast(pa.int32()).cast(pa.int64()) if pa.types.is_date32(column.type) else _as_numbers(column)
        ).as_py()
        if found["min"] is not None and (found["min"] < low or found["max"] > high):
            raise self._refusal(f"a value in column {name!r} outside {said}", "Filter such rows, or cast the column to STRING.")

    def _check_sizes(self, rows: "pa.RecordBatch") -> None:
        for index in range(rows.num_rows):
            if rows.slice(index, 1).nbytes > MAX_ROW_BYTES:
                raise self._refusal(
                    f"a row of more than {MAX_ROW_BYTES} bytes", "Filter such rows, or store the value elsewhere."
                )

    def _refusal(self, found: str, remedy: str) -> StageFailed:
        return StageFailed(f"Sink {self.sink!r} cannot store these rows in table {self.table!r}: found {found}.", remedy=remedy)


def _as_numbers(column: "pa.Array") -> "pa.Array":
    return column if pa.types.is_integer(column.type) else column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())


def _limits(kind: Any) -> tuple[int, int, str] | None:
    if pa.types.is_uint64(kind):
        return 0, MAX_INTEGER, "64 bits with sign"
    if pa.types.is_timestamp(kind):
        return _FIRST_MICROSECOND, _LAST_MICROSECOND, _YEARS
    if pa.types.is_date32(kind):
        return _FIRST_DAY, _LAST_DAY, _YEARS
    return None
