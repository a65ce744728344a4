"""Row checks in the tasks for a table of Redshift."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from penstock.sink.redshift.statements import folded
from penstock.sink.redshift.storage import MOST_BINARY_BYTES, MOST_TEXT_BYTES, storage_of
from penstock.sink.table.nested import is_bytes, is_text
from penstock.sink.table.row_validator import TableRowValidator

MAX_ROW_BYTES = 3_000_000
"""Redshift's own limit is 4 MB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowValidator(TableRowValidator):
    """Refuses what Redshift cannot store. `octets`: the most bytes of some columns. `key`: the key's columns, folded."""

    octets: Mapping[str, int]
    key: frozenset[str]

    def folded(self, name: str) -> str:
        return folded(name)

    def check_more(self, name: str, column: "pa.Array") -> None:
        """Raise StageFailed for NUL, long values, parts of microseconds, values without JSON, and keys that count as equal."""
        kind = column.type
        if pa.types.is_time64(kind):
            self.require_whole_microseconds(name, column)
        if pa.types.is_nested(kind):
            texts = self.require_json(name, partial(storage_of(kind).encode, column))
            self._check_length(name, texts, MOST_TEXT_BYTES)
        elif is_bytes(kind):
            self._check_length(name, column, MOST_BINARY_BYTES)
        elif is_text(kind):
            self._check_text(name, column)

    def _check_text(self, name: str, column: "pa.Array") -> None:
        self.require_no_nul(name, column, database="Redshift")
        self._check_length(name, column, MOST_TEXT_BYTES)
        if self.folded(name) in self.key:
            self.require_no_blank_at_end(name, column)

    def _check_length(self, name: str, column: "pa.Array", most: int) -> None:
        most = min(most, self.octets.get(self.folded(name), most))
        self.require_short(name, pc.max(pc.binary_length(column)).as_py(), most, unit="bytes")
