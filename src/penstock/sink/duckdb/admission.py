"""What a task refuses for a table of DuckDB."""

from dataclasses import dataclass

import pyarrow as pa

from penstock.sink.duckdb.storage import stored_type
from penstock.sink.table.admission import Limits, TableAdmission


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission(TableAdmission):
    """As `TableAdmission`. DuckDB keeps every value of the types that it has."""

    def folded(self, name: str) -> str:
        """In lower case."""
        return name.lower()

    def limits(self, kind: "pa.DataType") -> Limits | None:  # noqa: ARG002 - the others have some
        """None: it takes all of them."""
        return None

    def check_more(self, name: str, column: "pa.Array") -> None:
        """Nested values that cannot be stored."""
        try:
            column.cast(stored_type(column.type))
        except (pa.ArrowException, TypeError) as cause:
            raise self.refusal(f"a value in column {name!r} that DuckDB cannot hold: {cause}", "Change it.") from cause
