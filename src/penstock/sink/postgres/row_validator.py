"""What a task refuses for a table of PostgreSQL."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from penstock.sink.postgres.storage import encoded
from penstock.sink.table.row_validator import Limits, TableRowValidator

_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
_MAX_JSONB_TEXT = 268_435_455

_MICROSECONDS = Limits(
    low=-210_866_803_200_000_000, high=(1 << 63) - 1, description="what PostgreSQL holds, from 4714-11-24 BC on"
)
_DAYS = Limits(low=-2_440_588, high=2_145_031_948, description="what PostgreSQL holds, 4714-11-24 BC to 5874897-12-31")


@dataclass(frozen=True, slots=True, kw_only=True)
class RowValidator(TableRowValidator):
    """As `TableRowValidator`. `longest`: how many characters some columns take. `jsonb`: the columns that are parsed."""

    longest: Mapping[str, int]
    jsonb: frozenset[str]

    def folded(self, name: str) -> str:
        """Names count as they are."""
        return name

    def limits(self, kind: "pa.DataType") -> Limits | None:
        """What its times take."""
        if pa.types.is_timestamp(kind):
            return _MICROSECONDS
        return _DAYS if pa.types.is_date32(kind) else None

    def check_more(self, name: str, column: "pa.Array") -> None:
        """NUL, long texts, parts of microseconds, and what has no JSON."""
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            self._check_text(name, column)
        if pa.types.is_time64(column.type):
            self.require_whole_microseconds(name, column)
        if pa.types.is_nested(column.type):
            self._check_nested(name, column)

    def _check_text(self, name: str, column: "pa.Array") -> None:
        if pc.any(pc.match_substring(column, "\0")).as_py():
            raise self.refusal(
                f"NUL (U+0000) in column {name!r}, which PostgreSQL has in no text", "Remove it, or cast the column to BINARY."
            )
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
