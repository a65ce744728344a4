"""Row checks in the tasks for a table behind any driver: values that the trial of the table did not get back."""

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from penstock.sink.table.row_validator import TableRowValidator

NAN, INFINITY, NUL = "NaN", "an infinity", "the character NUL"


@dataclass(frozen=True, slots=True, kw_only=True)
class RowValidator(TableRowValidator):
    """Refuses what the trial lost. `lacking`: NAN, INFINITY, NUL by column. `longest`: the most characters or bytes by column."""

    lacking: Mapping[str, tuple[str, ...]]
    longest: Mapping[str, int]

    def folded(self, name: str) -> str:
        """Return the name unchanged: whether case counts in this database is unknown."""
        return name

    def check_more(self, name: str, column: "pa.Array") -> None:
        """Raise StageFailed for values that the database does not keep, and for longer ones than were tried."""
        for what in self.lacking.get(name, ()):
            if pc.any(_has(column, what)).as_py():
                raise self.refusal(
                    f"{what} in column {name!r}, which does not come back from there", "Filter such rows, or change the value."
                )
        if name in self.longest:
            text = pa.types.is_string(column.type)
            found = pc.max(pc.utf8_length(column) if text else pc.binary_length(column)).as_py()
            self.require_short(name, found, self.longest[name], unit="characters" if text else "bytes")


def _has(column: "pa.Array", what: str) -> "pa.Array":
    if what == NUL:
        return pc.match_substring(column, "\0")
    return pc.is_nan(column) if what == NAN else pc.is_inf(column)
