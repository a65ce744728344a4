"""Random changes of few keys: inserts, updates, deletions, late ones and repeated ones, in batches of random size.

A stream is mixed into a sink's plain rig. Which changes a batch has follows from PENSTOCK_SEED and its number.
"""

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from tests.conformance.table_rig import GONE
from tests.conformance.topic_rig import SpooledRig
from tests.seed import SEED

from penstock.sink.table.history import COLUMNS
from penstock.testing.conformance import Row, SinkRig

KEYS = 300
SIZES = (0, 1, 30, 200, 600)
DELETING, LATE, AGAIN = 0.25, 0.3, 0.1
"""The shares of changes that delete, of those that are older than what is there, and of those that come again."""
_BATCH = 1_000
"""How far the numbers of two batches are apart."""
_LATE_BY = 5 * _BATCH


def changes(first: int, plain: Callable[[Iterable[int]], list[Row]]) -> list[Row]:
    """Those of one task, made of the plain rows of the rig; some came before, in the task's batch or in the one before."""
    chance = random.Random(f"{SEED} {first} again")
    fresh = _fresh(first, plain)
    before = _fresh(first - _BATCH, plain) if first >= _BATCH else []
    made: list[Row] = []
    for row in fresh:
        made.append(row)
        if chance.random() < AGAIN:
            made.append(chance.choice(chance.choice([made, before or made])))
    return made


def _fresh(first: int, plain: Callable[[Iterable[int]], list[Row]]) -> list[Row]:
    chance = random.Random(f"{SEED} {first}")
    rows = plain(range(first, first + chance.choice(SIZES)))
    return [
        {
            **row,
            "id": chance.randrange(KEYS),
            "name": GONE if chance.random() < DELETING else row["name"],
            "number": first + at - (chance.randrange(_LATE_BY) if chance.random() < LATE else 0),
        }
        for at, row in enumerate(rows)
    ]


class Changes(SinkRig):
    """Upserted by key, from files of the spool."""

    write = "upsert"
    key = ("id",)
    inline_limit_bytes = 0
    more: ClassVar[Mapping[str, Any]] = {}
    """What the sink is made with besides, where it is one of a database."""

    def filling(self, table: str) -> Any:
        return {**super().filling(table), **self.more}  # type: ignore[misc]

    def rows(self, ids: Iterable[int]) -> list[Row]:
        return changes(next(iter(ids)), super().rows)


class Deleting(Changes):
    """Of each key the last change counts; some delete."""

    has_deletes = True
    more: ClassVar = {"deletes": True}

    def deletes(self, row: Row) -> bool:
        return bool(row["name"] == GONE)

    def settle(self, batches: Sequence[Sequence[Row]]) -> Iterable[Row]:
        there: dict[object, Row] = {}
        for row in (row for batch in batches for row in batch):
            there.pop(row["id"], None)
            if not self.deletes(row):
                there[row["id"]] = row
        return there.values()


def newest_by_number(batches: Iterable[Sequence[Row]]) -> Iterable[Row]:
    """Return of each `id` the row with the greatest `number`; of equal ones the last."""
    there: dict[object, Row] = {}
    for row in (row for batch in batches for row in batch):
        old = there.get(row["id"])
        if old is None or row["number"] >= old["number"]:
            there[row["id"]] = row
    return there.values()


class Sequenced(Changes):
    """Of each key the change of the greatest `number` counts; of equal ones the last."""

    sequence_by = "number"
    more: ClassVar = {"sequence_by": "number"}

    def settle(self, batches: Sequence[Sequence[Row]]) -> Iterable[Row]:
        return newest_by_number(batches)


class Kept(Sequenced):
    """Every version stays; of those of one key and one `number` the last one."""

    more: ClassVar = {"sequence_by": "number", "history": True}

    def read_back(self) -> Iterator[Row]:
        """The rows without the columns of the history."""
        return ({name: value for name, value in row.items() if name not in COLUMNS} for row in super().read_back())

    def settle(self, batches: Sequence[Sequence[Row]]) -> Iterable[Row]:
        return {(row["id"], row["number"]): row for batch in batches for row in batch}.values()


class KeptInLake(Kept):
    write = "history"


class Tombstones(SpooledRig):
    """Changes as records of a compacted topic: a reader keeps the newest value of each key, and none of a deleted one.

    Only the rows of one task are in order, so that each has keys of its own.
    """

    has_deletes = True

    def make(self, **changed: Any) -> Any:
        return super().make(**{"deletes": True, **changed})

    def rows(self, ids: Iterable[int]) -> list[Row]:
        first = next(iter(ids))
        made = changes(first, lambda numbers: [{"id": number, "name": "", "number": 0} for number in numbers])
        task = first // 100 % 10
        return [
            {
                "key": str(row["id"] * 2 + task),
                "value": GONE.encode() if row["name"] == GONE else str(row["number"]).encode(),
                "headers": [],
            }
            for row in made
        ]

    def deletes(self, row: Row) -> bool:
        return bool(row["value"] == GONE.encode())

    def read_back(self) -> Iterator[Row]:
        newest = {row["key"]: row for row in super().read_back()}
        return (row for row in newest.values() if row["value"] is not None)

    def settle(self, batches: Sequence[Sequence[Row]]) -> Iterable[Row]:
        newest = {row["key"]: row for batch in batches for row in batch}
        return [row for row in newest.values() if not self.deletes(row)]


def compacted(running: Any, topic: str, directory: Path) -> Tombstones:
    """On a topic of that broker which is compacted all the time."""
    settings = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0.01", "segment_ms": "500"}
    return Tombstones(directory, running.bootstrap, running.topic(topic, **settings))
