"""Row checks in the tasks for a table of SQL Server."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from penstock.sink.sqlserver.statements import folded
from penstock.sink.sqlserver.storage import storage_of, units_of
from penstock.sink.table.nested import is_bytes, is_text
from penstock.sink.table.row_validator import TableRowValidator

_LEAST_NORMAL = {32: 1.1754943508222875e-38, 64: 2.2250738585072014e-308}


@dataclass(frozen=True, slots=True, kw_only=True)
class RowValidator(TableRowValidator):
    """Refuses what SQL Server cannot store. `units`: most UTF-16 units, or bytes, of some columns. `key`: its columns, folded."""

    units: Mapping[str, int]
    key: frozenset[str]

    def folded(self, name: str) -> str:
        return folded(name)

    def check_more(self, name: str, column: "pa.Array") -> None:
        """Raise StageFailed for numbers, times, lengths and JSON that SQL Server lacks, and for keys that count as equal."""
        kind = column.type
        if pa.types.is_floating(kind):
            self._check_number(name, column)
        if pa.types.is_time64(kind):
            self.require_whole_microseconds(name, column)
        if pa.types.is_nested(kind):
            self._check_text(name, self.require_json(name, partial(storage_of(kind).encode, column)))
        elif is_text(kind):
            self._check_text(name, column)
        elif is_bytes(kind):
            self._check_bytes(name, column)

    def _check_number(self, name: str, column: "pa.Array") -> None:
        if pc.any(pc.invert(pc.is_finite(column))).as_py():
            raise self.refusal(
                f"NaN or an infinity in column {name!r}, which SQL Server cannot store", "Filter such rows, or cast to STRING."
            )
        small = pc.and_(pc.less(pc.abs(column), _LEAST_NORMAL[column.type.bit_width]), pc.not_equal(column, 0.0))
        if pc.any(small).as_py():
            raise self.refusal(
                f"a number nearer to zero than {_LEAST_NORMAL[column.type.bit_width]} in column {name!r}",
                "Round such numbers, or cast to STRING.",
            )

    def _check_text(self, name: str, column: "pa.Array") -> None:
        if self.folded(name) in self.units:
            self.require_short(name, pc.max(units_of(column)).as_py(), self.units[self.folded(name)], unit="units of UTF-16")
        if self.folded(name) in self.key:
            self.require_no_blank_at_end(name, column)

    def _check_bytes(self, name: str, column: "pa.Array") -> None:
        if self.folded(name) in self.units:
            self.require_short(name, pc.max(pc.binary_length(column)).as_py(), self.units[self.folded(name)], unit="bytes")
        if self.folded(name) in self.key and any((value or b"").endswith(b"\0") for value in column.to_pylist()):
            raise self.refusal(
                f"bytes with a zero at their end in the key's column {name!r}, which count as equal to those without",
                "Use another column as key.",
            )
