"""The lengths of a decided batch's texts, compared with columns that were shortened after the tasks had checked the rows.

Several databases silently cut a text that is too long by blanks alone, as the SQL standard specifies.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from penstock.sink.table.columns import Columns


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """The maximum lengths of some columns in `unit`, which `measure` counts. `declared` is a type that takes any text."""

    of: Columns
    most: Mapping[str, int]
    measure: Callable[["pa.Array"], "pa.Array"]
    unit: str
    declared: str

    def required(self, batches: Iterator["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
        """Yield `batches` unchanged. Raise Refused at the first one with a text that is longer than its column takes."""
        for batch in batches:
            for name, most in self.most.items():
                found = pc.max(self.measure(batch.column(name))).as_py()
                if found is not None and found > most:
                    raise self.of.too_long(name, found, f"{most} {self.unit}", declared=self.declared)
            yield batch


def lengths_of(schema: "pa.Schema", length_of: Callable[[str], int | None]) -> Mapping[str, int]:
    """Return the maximum length of each text column of `schema` for which `length_of` knows one by its name."""
    texts = [field.name for field in schema if pa.types.is_string(field.type) or pa.types.is_large_string(field.type)]
    return {name: most for name in texts if (most := length_of(name)) is not None}


def sizes_of(declared: Mapping[str, str], size_of: Callable[[str], int | None]) -> Mapping[str, int]:
    """Return the size of each column for which `size_of` knows one by its declared type."""
    return {name: size for name, kind in declared.items() if (size := size_of(kind)) is not None}
