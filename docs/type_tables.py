"""Writes docs/reference/postgres-types.md: how each type of Spark is stored, from the code that stores it. Run by `make docs`."""

from pathlib import Path

import pyarrow as pa

from penstock.sink.postgres.storage import STORAGES

PAGE = Path(__file__).parent / "reference" / "postgres-types.md"
EXAMPLES = (
    *(pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.bool_(), pa.decimal128(12, 2), pa.string(), pa.binary()),
    *(pa.date32(), pa.timestamp("us", "UTC"), pa.timestamp("us"), pa.time64("ns"), pa.duration("us"), pa.list_(pa.int64())),
    pa.null(),
)
HEAD = """# Types in PostgreSQL

Made from the code by `make docs`; do not edit. What each type of Spark becomes in a table that the sink creates, which columns
of an existing table will do as well, and which values are refused: in the task, before anything is decided. Any other column is
refused before the start, because it would change values: `double` in `numeric` is rounded, text in `char(n)` is padded, `bigint`
in `integer` may not fit.

| Spark | created as | will do as well | refused values |
|---|---|---|---|
"""
TAIL = """
NaN and the infinities are values of `real` and `double precision`; PostgreSQL calls NaN equal to itself and greater than any
number. A negative zero stays one. Inside JSON, decimals, dates, times, NaN and the infinities are texts, binary is base64, and a
map is an object, or a list of `[key, value]` where its keys are no texts.
"""


def page() -> str:
    """The page as the code is now."""
    storages = {storage.spark: (storage, kind) for kind in EXAMPLES for is_kind, storage in STORAGES if is_kind(kind)}
    assert len(storages) == len(STORAGES), "give an example of each type"
    rows = [
        f"| {storage.spark} | `{declared(storage.declared(kind))}` | {storage.also} | {storage.refused} |"
        for storage, kind in (storages[storage.spark] for _, storage in STORAGES)
    ]
    return HEAD + "\n".join(rows) + "\n" + TAIL


def declared(name: str) -> str:
    """The type as the table shows it."""
    return "numeric(p,s)" if name.startswith("numeric") else name


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
