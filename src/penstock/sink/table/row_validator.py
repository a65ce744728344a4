"""Row checks in the tasks, before the decision: a decided row that the table can never take would stop the pipeline for good."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.model import SinkName
from penstock.errors import StageFailed

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The least and the greatest value of a column, as integers in its unit. `description` names them in messages."""

    low: int
    high: int
    description: str


_YEARS = "the years 0001 to 9999"
YEARS_IN_MICROSECONDS = Limits(low=-62_135_596_800_000_000, high=253_402_300_799_999_999, description=_YEARS)
YEARS_IN_DAYS = Limits(low=-719_162, high=2_932_896, description=_YEARS)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRowValidator(ABC):
    """The check of a sink's rows in the tasks; picklable. `required`: the folded names of columns that take no NULL."""

    sink: SinkName
    table: str
    required: frozenset[str]
    max_row_bytes: int = 1_000_000_000
    """SQLite's own limit for a row; a database with a lower one sets it."""

    def __call__(self, rows: "pa.RecordBatch") -> None:
        """Raise StageFailed, naming the column, unless the database takes every value."""
        try:
            rows.validate(full=True)
        except pa.ArrowInvalid as cause:
            raise self.refusal(f"damaged values: {cause}", "Clean the values in the transform.") from cause
        for field, column in zip(rows.schema, rows.columns, strict=True):
            self._check(field.name, column)
        if rows.nbytes > self.max_row_bytes:
            self._check_sizes(rows)

    @abstractmethod
    def folded(self, name: str) -> str:
        """Return the column's name as the database compares it."""

    def limits(self, kind: "pa.DataType") -> Limits | None:
        """Return the limits of a column of type `kind`, None if it takes every value. By default, years have four digits."""
        if pa.types.is_timestamp(kind):
            return YEARS_IN_MICROSECONDS
        return YEARS_IN_DAYS if pa.types.is_date32(kind) else None

    @abstractmethod
    def check_more(self, name: str, column: "pa.Array") -> None:
        """Raise StageFailed for values that only this kind of database refuses."""

    def refusal(self, found: str, remedy: str) -> StageFailed:
        return StageFailed(f"Sink {self.sink!r} cannot store these rows in table {self.table!r}: found {found}.", remedy=remedy)

    def require_within(self, name: str, column: "pa.Array", limits: Limits) -> None:
        """Raise StageFailed for dates, timestamps or integers outside `limits`."""
        found = pc.min_max(_as_numbers(column)).as_py()
        if found["min"] is not None and (found["min"] < limits.low or found["max"] > limits.high):
            raise self.refusal(
                f"a value in column {name!r} outside {limits.description}", "Filter such rows, or cast the column to STRING."
            )

    def require_short(self, name: str, found: int | None, most: int, *, unit: str = "characters") -> None:
        """Raise StageFailed if `found`, the length of the longest value, exceeds `most`."""
        if found is not None and found > most:
            raise self.refusal(
                f"{found} {unit} in column {name!r}, which takes {most}", "Cut the value in the transform, or widen the column."
            )

    def require_whole_microseconds(self, name: str, column: "pa.Array") -> None:
        """Raise StageFailed for times of day with a fraction of a microsecond."""
        whole = column.cast(pa.time64("us"), safe=False).cast(column.type)
        if pc.any(pc.not_equal(whole, column)).as_py():
            raise self.refusal(f"a part of a microsecond in column {name!r}", "Cast the column to TIME(6).")

    def require_no_nul(self, name: str, column: "pa.Array", *, database: str) -> None:
        """Raise StageFailed for texts with a NUL."""
        if pc.any(pc.match_substring(column, "\0")).as_py():
            raise self.refusal(
                f"NUL (U+0000) in column {name!r}, which {database} allows in no text", "Remove it, or cast the column to BINARY."
            )

    def require_no_blank_at_end(self, name: str, column: "pa.Array") -> None:
        """Raise StageFailed for key texts that end in a blank, which the database ignores when it compares them."""
        if pc.any(pc.ends_with(column, " ")).as_py():
            raise self.refusal(
                f"a text with a blank at its end in the key's column {name!r}, which counts as equal to the text without",
                "Trim the column in the transform.",
            )

    def require_json(self, name: str, encode: Callable[[], T]) -> T:
        """Return the result of `encode`. Raise StageFailed if values have no JSON."""
        try:
            return encode()
        except (ValueError, OverflowError, TypeError, pa.ArrowException) as cause:
            found = f"a value in column {name!r} that has no JSON: {cause}"
            raise self.refusal(found, "Change it in the transform.") from cause

    def _check(self, name: str, column: "pa.Array") -> None:
        if column.null_count and self.folded(name) in self.required:
            raise self.refusal(f"NULL in column {name!r}, which allows none", "Filter such rows, or fill the column.")
        self.check_more(name, column)
        limits = self.limits(column.type)
        if limits is not None:
            self.require_within(name, column, limits)

    def _check_sizes(self, rows: "pa.RecordBatch") -> None:
        for index in range(rows.num_rows):
            if rows.slice(index, 1).nbytes > self.max_row_bytes:
                raise self.refusal(
                    f"a row of more than {self.max_row_bytes} bytes", "Filter such rows, or store the value elsewhere."
                )


def _as_numbers(column: "pa.Array") -> "pa.Array":
    if pa.types.is_date32(column.type):
        return column.cast(pa.int32()).cast(pa.int64())
    return column if pa.types.is_integer(column.type) else column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
