"""The rig that a sink brings to the suite: its target, and how to read and damage it; and rows in which every mistake shows.

Rows have unique ids, hostile texts, extreme numbers and nulls.
"""

import datetime as dt
import json
import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, TypeAlias

import pyarrow as pa

from penstock.core.deletes import with_deletes
from penstock.core.model import NEWEST_ROW_DIGEST, BatchId, Generation, LedgerId, PipelineName, RowDigest, SweepCut
from penstock.core.row_hash import row_hashes
from penstock.ledger.open import open_ledger
from penstock.protocols import HashesRows, Ledger, Sink
from penstock.spark.schema import arrow_schema

Row: TypeAlias = Mapping[str, Any]
Content: TypeAlias = "Counter[tuple[str, ...]]"

HOSTILE = (
    "", " ", "plain", "a'b\"c`d", "'; DROP TABLE rows; --", "a/b/../c", "..", "x=y", "%2F", "100%", "\\", "\t\r\n",
    "null", "NULL", "__HIVE_DEFAULT_PARTITION__", "nul\0byte", "007", "1e5", "NaN", "é", "e\u0301", "\U0001f600",
    "\u202eabc", "\ufeffx", "z" * 200,
)  # fmt: skip
"""Texts that break quoting, paths, number guessing or Unicode handling somewhere."""

_DOUBLES = (0.1, 5e-324, 1.7976931348623157e308, math.nan, math.inf, -math.inf, 2.0**53 + 2, None)
_LONGS = (0, -1, 2**63 - 1, -(2**63), None)
_PRICES = (Decimal("0.01"), Decimal("-9999999999.99"), Decimal("0.00"), None)
_DAYS = (dt.date(1970, 1, 1), dt.date(1, 1, 1), dt.date(9999, 12, 31), None)
_MOMENTS = (
    dt.datetime(2013, 1, 31, 5, 15, tzinfo=dt.timezone.utc),
    dt.datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=dt.timezone.utc),
    dt.datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=dt.timezone.utc),
    None,
)

_TYPES = {
    "id": "long",
    "place": "string",
    "name": "string",
    "number": "long",
    "amount": "double",
    "price": "decimal(12,2)",
    "day": "date",
    "seen": "timestamp",
    "flag": "boolean",
    "raw": "binary",
}

SCHEMA = json.dumps(
    {
        "type": "struct",
        "fields": [{"name": name, "type": kind, "nullable": name != "id", "metadata": {}} for name, kind in _TYPES.items()],
    }
)
"""Spark's JSON of the rows."""


def make_rows(ids: Iterable[int]) -> list[Row]:
    """Return one row for each id, always the same for the same id; neighbours differ in every column."""
    return [
        {
            "id": number,
            "place": HOSTILE[number % 7 + 2],
            "name": HOSTILE[number % len(HOSTILE)] if number % 11 else None,
            "number": _LONGS[number % len(_LONGS)],
            "amount": _DOUBLES[number % len(_DOUBLES)],
            "price": _PRICES[number % len(_PRICES)],
            "day": _DAYS[number % len(_DAYS)],
            "seen": _MOMENTS[number % len(_MOMENTS)],
            "flag": (True, False, None)[number % 3],
            "raw": bytes([number % 256, 0, 255]) if number % 5 else None,
        }
        for number in ids
    ]


SWAPPED = 1015
"""Id of a row with `number` 0 and `price` NULL, and NULL in the column between them."""


def swapped(row: Row) -> Row:
    """Return the row of id SWAPPED with its `number` moved into `price`: hashes that skip NULLs stay the same."""
    assert (row["number"], row["amount"], row["price"]) == (0, None, None)
    return {**row, "number": None, "price": Decimal("0.00")}


def as_batch(rows: Sequence[Row], schema: str = SCHEMA) -> "pa.RecordBatch":
    """Return the rows as Spark hands them to a Python worker."""
    return pa.RecordBatch.from_pylist([dict(row) for row in rows], schema=arrow_schema(schema))


def content(rows: Iterable[Row]) -> Content:
    """Return the multiset of `rows`: columns by name, values by type and value, so that 1, 1.0, True and "1" all differ."""
    return Counter(tuple(f"{name}={_plain(row[name])}" for name in sorted(row)) for row in rows)


def _plain(value: Any) -> str:
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        return f"instant {value.astimezone(dt.timezone.utc).isoformat()}"
    return repr(value)


def require_equal(found: Iterable[Row], expected: Iterable[Row]) -> None:
    """Raise AssertionError unless both hold the same rows. It shows up to three missing and three surplus rows."""
    shown, wanted = content(found), content(expected)
    lost, surplus = list((wanted - shown).elements()), list((shown - wanted).elements())
    if lost or surplus:
        raise AssertionError(f"{len(lost)} rows lost: {lost[:3]}; {len(surplus)} rows too many: {surplus[:3]}")


PIPELINE: Final = PipelineName("conformance")
LEDGER_ID: Final = LedgerId("5e" * 16)
"""The ledger of publications that a test decides itself."""
DAMAGES: Final = ("lost", "doubled", "changed", "foreign", "swapped")

_EVERYTHING = SweepCut(
    pipeline=PIPELINE, ledger_id=LEDGER_ID, generation=Generation(1 << 40), batch_id=BatchId(1 << 40), kept=frozenset()
)


class SinkRig(ABC):
    """One target below an empty `directory`, and how the suite reads it from outside. Picklable, for other processes.

    Class attributes state what the target promises; the defaults are those of a transactional append.
    """

    schema: str = SCHEMA
    """Spark's JSON of the rows. Use the columns of `SCHEMA`, or override `rows` as well."""
    whole_batches: bool = True
    """Whether readers see a batch atomically. False: only each piece (rows of one attempt with the same `unit_of`)."""

    row_digest: RowDigest = NEWEST_ROW_DIGEST
    """The kind of row hashes in the ledger."""
    has_deletes: bool = False
    """Whether the sink is given rows that delete, those for which `deletes` is true."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @abstractmethod
    def make(self) -> Sink:
        """Return a new sink on the same target, not prepared yet."""

    def make_hashing(self) -> Sink:
        """Return `make()`, set to the ledger's kind of row hashes."""
        sink = self.make()
        if isinstance(sink, HashesRows):
            sink.use_row_digest(self.row_digest)
        return sink

    @abstractmethod
    def read_back(self) -> Iterable[Row]:
        """Return all rows that a reader sees now, with other code than the sink's where possible; none without a target."""

    def rows(self, ids: Iterable[int]) -> list[Row]:
        """Return one row for each id, always the same. Override it where the target's types lack a value, and document that."""
        return make_rows(ids)

    def deletes(self, row: Row) -> bool:  # noqa: ARG002 - for sinks in which rows delete
        """Return whether the row deletes the one with its key."""
        return False

    def batch(self, rows: Sequence[Row]) -> "tuple[pa.RecordBatch, pa.UInt64Array]":
        """Return the rows as a stage writer gets them, and their hashes."""
        batch = as_batch(rows, self.schema)
        hashes = row_hashes(batch, self.row_digest)
        if self.has_deletes:
            batch = with_deletes(batch, pa.array([self.deletes(row) for row in rows], pa.bool_()))
        return batch, hashes

    def ledger(self) -> Ledger:
        """Return the ledger to deliver by, always the same. Override it with one in the sink's database to share transactions."""
        return open_ledger(str(self.directory / "ledger"), pipeline=PIPELINE)

    def settle(self, batches: Sequence[Sequence[Row]]) -> Iterable[Row]:
        """Return what the target shows after these batches. Override it for sinks that do not append."""
        return [row for batch in batches for row in batch]

    def unit_of(self, row: Row) -> object:  # noqa: ARG002 - for sinks whose attempts stage several pieces
        """Return which piece of its attempt a row belongs to, where readers may see an attempt's pieces one after the other."""
        return None

    def leftovers(self) -> Sequence[str]:
        """Return the staging that exists: by default what a sweep that spares nothing would collect. Better override it."""
        sink = self.make()
        sink.prepare(pipeline=PIPELINE, schema=self.schema)
        try:
            return sink.sweep(_EVERYTHING, dry_run=True)
        finally:
            sink.close()

    def damage(self, kind: str) -> None:
        """Change published content behind the sink's back, so that a row is lost, doubled, changed or foreign (see DAMAGES).

        `swapped`: a value moves into a column that was NULL, as `swapped` does with the row of id `SWAPPED`. `moved`, for sinks
        whose files are compared one by one: two files of one place exchange a row.
        """
        raise NotImplementedError(kind)

    def lose_staging(self) -> None:
        """Destroy or damage what is staged. For `StagingLossContract`; inline staging cannot be lost."""
        raise NotImplementedError
