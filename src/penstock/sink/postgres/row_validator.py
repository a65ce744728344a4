"""Validation of rows in the tasks: values that a table of PostgreSQL cannot hold are refused before the decision."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from penstock.sink.postgres.storage import encoded
from penstock.sink.table.nested import is_text
from penstock.sink.table.row_validator import Limits, TableRowValidator

_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
_MAX_JSONB_TEXT = 268_435_455

_MICROSECONDS = Limits(
    low=-210_866_803_200_000_000, high=(1 << 63) - 1, description="what PostgreSQL holds, from 4714-11-24 BC on"
)
_DAYS = Limits(low=-2_440_588, high=2_145_031_948, description="what PostgreSQL holds, 4714-11-24 BC to 5874897-12-31")


@dataclass(frozen=True, slots=True, kw_only=True)
class RowValidator(TableRowValidator):
    """A `TableRowValidator` for PostgreSQL. `longest`: the most characters that a column takes. `jsonb`: columns of that type."""

    longest: Mapping[str, int]
    jsonb: frozenset[str]

    def folded(self, name: str) -> str:
        return name

    def limits(self, kind: "pa.DataType") -> Limits | None:
        if pa.types.is_timestamp(kind):
            return _MICROSECONDS
        return _DAYS if pa.types.is_date32(kind) else None

    def check_more(self, name: str, column: "pa.Array") -> None:
        """Raise StageFailed for NUL, long texts, fractions of a microsecond, and values that have no JSON."""
        if is_text(column.type):
            self._check_text(name, column)
        if pa.types.is_time64(column.type):
            self.require_whole_microseconds(name, column)
        if pa.types.is_nested(column.type):
            self._check_nested(name, column)

    def _check_text(self, name: str, column: "pa.Array") -> None:
        self.require_no_nul(name, column, database="PostgreSQL")
        if name in self.longest:
            self.require_short(name, pc.max(pc.utf8_length(column)).as_py(), self.longest[name])

    def _check_nested(self, name: str, column: "pa.Array") -> None:
        texts = self.require_json(name, partial(encoded, column))
        if name not in self.jsonb:
            return
        for text in texts.filter(pc.match_substring(texts, "\\u0000")).to_pylist():
            if _NUL.search(text):
                raise self.refusal(f"NUL (U+0000) in column {name!r} of type jsonb", "Remove it, or declare the column json.")
        if (pc.max(pc.binary_length(texts)).as_py() or 0) > _MAX_JSONB_TEXT:
            raise self.refusal(f"more than {_MAX_JSONB_TEXT} bytes in column {name!r} of type jsonb", "Declare the column json.")
