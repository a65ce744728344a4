"""Writes docs/reference/…-types.md: how each type of Spark is stored, from the code that stores it. Run by `make docs`."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.sink.cassandra import storage as cassandra
from penstock.sink.mysql import storage as mysql
from penstock.sink.postgres import storage as postgres
from penstock.sink.redshift import storage as redshift
from penstock.sink.sqlserver import storage as sqlserver
from penstock.sink.table.storage import Storages

EXAMPLES = (
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.bool_(), pa.decimal128(12, 2), pa.string()),
    *(pa.binary(), pa.date32(), pa.timestamp("us", "UTC"), pa.timestamp("us"), pa.time64("ns"), pa.duration("us")),
    *(pa.list_(pa.int64()), pa.null()),
)
HEAD = """# Types in {database}

Made from the code by `make docs`; do not edit. What each type of Spark becomes in a table that the sink creates, which columns
of an existing table will do as well, and which values are refused: in the task, before anything is decided. Any other column is
refused before the start, because it would change values: {because}.

| Spark | created as | will do as well | refused values |
|---|---|---|---|
"""
IN_JSON = """Inside JSON, decimals, dates, times, NaN and the infinities are texts, binary is base64, and a
map is an object, or a list of `[key, value]` where its keys are no texts.
"""


@dataclass(frozen=True)
class Page:
    """One page: its name, what it says around the table, and the table's source."""

    name: str
    database: str
    because: str
    tail: str
    storages: Storages[Any]

    @property
    def path(self) -> Path:
        """Where it is."""
        return Path(__file__).parent / "reference" / f"{self.name}-types.md"

    def text(self) -> str:
        """The page as the code is now."""
        examples = {storage.spark: (storage, kind) for kind in EXAMPLES for is_kind, storage in self.storages if is_kind(kind)}
        assert len(examples) == len(self.storages), "give an example of each type"
        rows = [
            f"| {storage.spark} | `{declared(storage.declared(kind))}` | {storage.also} | {storage.refused} |"
            for storage, kind in (examples[storage.spark] for _, storage in self.storages)
        ]
        return HEAD.format(database=self.database, because=self.because) + "\n".join(rows) + "\n\n" + self.tail + IN_JSON


PAGES = (
    Page(
        name="postgres",
        database="PostgreSQL",
        because="`double` in `numeric` is rounded, text in `char(n)` is padded, `bigint`\nin `integer` may not fit",
        tail="NaN and the infinities are values of `real` and `double precision`; PostgreSQL calls NaN equal to itself and "
        "greater than any\nnumber. A negative zero stays one. ",
        storages=postgres.STORAGES,
    ),
    Page(
        name="mysql",
        database="MySQL and MariaDB",
        because="`double` in `decimal` is rounded, `datetime` without `(6)` drops\nmicroseconds, `char(n)` drops blanks, "
        "unsigned columns and other character sets than utf8mb4 do not hold every value",
        tail="Timestamps are kept in UTC, as `datetime(6)`: `timestamp(6)` ends in 2038. A text in a created key is "
        "`varchar(255)`, bytes in one\nare `varbinary(255)`. No value may be longer than the server's `max_allowed_packet`. A "
        "negative zero becomes zero, which counts\nas the same number; intervals are microseconds. ",
        storages=mysql.STORAGES,
    ),
    Page(
        name="redshift",
        database="Redshift",
        because="`double` in `numeric` is rounded, text in `char(n)` is\npadded, `bigint` in `integer` may not fit, and "
        "`super` does not keep texts as they were",
        tail="A text has 65,535 bytes at the most, and a row 3 MB. Names are in small letters. Keys are compared without blanks "
        "at their end,\nso that texts with one are refused in a key, and floating numbers too. Intervals are microseconds. ",
        storages=redshift.STORAGES,
    ),
    Page(
        name="sqlserver",
        database="SQL Server and Azure SQL",
        because="`float` in `decimal` is rounded, `varchar` does\nnot hold every text, `datetime` has no microseconds, `tinyint` "
        "no negative numbers",
        tail="A text in a created key is `nvarchar(255)`, bytes in one are `varbinary(255)`. Timestamps are kept in UTC. Keys "
        "are compared without\nblanks or zeros at their end, so that such are refused in a key, and floating numbers too. "
        "Intervals are microseconds. ",
        storages=sqlserver.STORAGES,
    ),
    Page(
        name="cassandra",
        database="Cassandra",
        because="`double` in `float` is rounded, `bigint` in `int` may\nnot fit, and a `list` that is not frozen grows "
        "whenever a write is repeated",
        tail="A `timestamp` has milliseconds and no zone: one without a zone is kept as if it were UTC. Intervals are "
        "microseconds. Columns of the\nkey are neither null nor floating nor nested. No row may have more than 8 MB, no key "
        "more than 64 KiB.\n",
        storages=cassandra.STORAGES,
    ),
)


def declared(name: str) -> str:
    """The type as the table shows it."""
    return re.sub(r"^(numeric|decimal)\(.*", r"\1(p,s)", name)


if __name__ == "__main__":
    for page in PAGES:
        page.path.write_text(page.text(), encoding="utf-8")
