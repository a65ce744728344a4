"""Validation of rows in the tasks: values that a table of MySQL cannot hold are refused before the decision."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from penstock.sink.mysql.storage import encoded
from penstock.sink.mysql.wire import longest_insert
from penstock.sink.table.nested import is_bytes, is_text
from penstock.sink.table.row_validator import Limits, TableRowValidator

_SINCE_1970 = Limits(
    low=1_000_000, high=2_147_483_647_999_999, description="what timestamp(6) holds, 1970-01-01 00:00:01 to 2038"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowValidator(TableRowValidator):
    """A `TableRowValidator` for MySQL. Column names are in lower case.

    `characters` and `octets`: the most of them that a column takes. `since_1970`: the columns of type timestamp.
    `max_value_bytes`: the longest value that the server takes. `max_insert_bytes`: its longest INSERT of one row, None where rows
    are loaded.
    """

    characters: Mapping[str, int]
    octets: Mapping[str, int]
    since_1970: frozenset[str]
    max_value_bytes: int
    max_insert_bytes: int | None

    def __call__(self, rows: "pa.RecordBatch") -> None:
        """Check the rows, and refuse a row whose INSERT the server would not take: its text may far exceed its values."""
        super(RowValidator, self).__call__(rows)
        if self.max_insert_bytes is not None and (needed := longest_insert(rows)) > self.max_insert_bytes:
            raise self.refusal(
                f"a row whose INSERT takes {needed} bytes, where max_allowed_packet is {self.max_insert_bytes}",
                "Filter such rows, or have the server set local_infile or a greater max_allowed_packet.",
            )

    def folded(self, name: str) -> str:
        return name.lower()

    def check_more(self, name: str, column: "pa.Array") -> None:
        """Raise StageFailed for NaN, over-long values, fractions of a microsecond, times out of range, values without JSON."""
        kind = column.type
        if pa.types.is_floating(kind) and pc.any(pc.invert(pc.is_finite(column))).as_py():
            raise self.refusal(
                f"NaN or an infinity in column {name!r}, which MySQL cannot store", "Filter such rows, or cast to STRING."
            )
        if pa.types.is_time64(kind):
            self.require_whole_microseconds(name, column)
        if self.folded(name) in self.since_1970:
            self.require_within(name, column, _SINCE_1970)
        if pa.types.is_nested(kind):
            self._check_length(name, self.require_json(name, partial(encoded, column)))
        elif is_text(kind) or is_bytes(kind):
            self._check_length(name, column)

    def _check_length(self, name: str, column: "pa.Array") -> None:
        folded = self.folded(name)
        if folded in self.characters:
            length = pc.utf8_length if is_text(column.type) else pc.binary_length
            self.require_short(name, pc.max(length(column)).as_py(), self.characters[folded])
        most = min(self.max_value_bytes, self.octets.get(folded, self.max_value_bytes))
        self.require_short(name, pc.max(pc.binary_length(column)).as_py(), most, unit="bytes")
