"""Texts of a decided batch against columns that were made shorter meanwhile.

Tasks compare them before the decision. Of a text that is too long by blanks alone, several databases cut the blanks off and say
nothing, as the SQL standard has it.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from penstock.sink.table.columns import Columns


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """How many of `unit`, which `measure` counts, some columns take; `declared`: a type that takes any text."""

    of: Columns
    most: Mapping[str, int]
    measure: Callable[["pa.Array"], "pa.Array"]
    unit: str
    declared: str

    def required(self, batches: Iterator["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
        """The batches themselves. Raises Refused at the first one with a text that is longer than its column takes."""
        for batch in batches:
            for name, most in self.most.items():
                found = pc.max(self.measure(batch.column(name))).as_py()
                if found is not None and found > most:
                    raise self.of.too_long(name, found, f"{most} {self.unit}", declared=self.declared)
            yield batch


def lengths_of(schema: "pa.Schema", length_of: Callable[[str], int | None]) -> Mapping[str, int]:
    """How long a text may be in the columns of `schema` that take no text of any length; `length_of` tells it by name."""
    texts = [field.name for field in schema if pa.types.is_string(field.type) or pa.types.is_large_string(field.type)]
    return {name: most for name in texts if (most := length_of(name)) is not None}
