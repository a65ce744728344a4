"""Settings of tables together: what a batch does to many tables by key, with history or a condition, by a replay in memory."""

import random
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from tests.seed import SEED
from tests.unit.compared_target import CONDITION, kept, replaces, versions
from tests.unit.many_target import World
from tests.unit.table_target import GONE, spark_schema

from penstock.core import faults
from penstock.core.model import BatchId, Decided, SinkName
from penstock.errors import PenstockError
from penstock.run.assembly import ledger_of
from penstock.run.operations import verify

SCHEMA = spark_schema(id="long", region="string", name="string", version="long")
ORDERS = SinkName("orders")
UPSERT: Mapping[str, Any] = {"write": "upsert", "key": ["id"]}
WAYS: Mapping[str, Mapping[str, Any]] = {
    "upsert": UPSERT,
    "newest": {**UPSERT, "sequence_by": "version"},
    "if_absent": {"write": "insert_if_absent", "key": ["id"]},
    "condition": {**UPSERT, "update_when": CONDITION},
    "condition_newest": {**UPSERT, "update_when": CONDITION, "sequence_by": "version"},
    "history": {**UPSERT, "history": True},
    "history_in_time": {**UPSERT, "history": True, "sequence_by": "version"},
}
DELETING = ("upsert", "condition", "history", "history_in_time")
STEPS = {
    "sqlite": ("tables.open", "sqlite.move", "sqlite.mark", "sqlite.commit", "ledger.sqlite_commit"),
    "duckdb": ("tables.open", "duckdb.mark", "ledger.sqlite_commit"),
    "delta": ("tables.open", "delta.commit", "laketables.next", "ledger.sqlite_commit"),
    "iceberg": ("tables.open", "iceberg.commit", "laketables.next", "ledger.sqlite_commit"),
}
COLUMNS = "id, name, version"
Change = tuple[int, str, str, int]
Tables = dict[str, dict[int, Any]]


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    yield
    faults.arm("")


@pytest.mark.parametrize(("kind", "way"), [*(("sqlite", way) for way in WAYS), ("duckdb", ""), ("delta", ""), ("iceberg", "")])
def test_random_changes_of_many_tables_equal_a_replay_in_memory(tmp_path: Path, kind: str, way: str) -> None:
    """Without a `way`, one that compares rows is drawn."""
    chance = random.Random(f"{SEED} {kind} {way}")
    print(f"PENSTOCK_SEED={SEED}")
    way = way or chance.choice([each for each in WAYS if each.startswith(("condition", "history"))])
    deletes = way in DELETING and chance.random() < 0.7
    given = {**WAYS[way], **({"delete_when": f"name = '{GONE}'"} if deletes else {})}
    ledger = chance.choice(["sqlite:///ledger.db", "sqlite:///shop.db"]) if kind == "sqlite" else "sqlite:///ledger.db"
    world = World(tmp_path, kind, ledger=ledger, deletes=deletes, **given)
    tables: Tables = {}
    batches = {number: _batch(chance, number, deletes=deletes) for number in range(4 if kind == "sqlite" else 3)}
    for number, tasks in batches.items():
        _deliver(world, number, tasks, chance)
        _replay(tables, tasks, _position(world, number), given, deletes=deletes)
        assert _found(world, given) == _expected(tables, given)
    report = verify(world.pipeline.plan)
    assert report.ok, report
    assert {name for name, each in report.sinks[ORDERS].accounts.items()} == set(tables)


def _batch(chance: random.Random, number: int, *, deletes: bool) -> list[list[Change]]:
    """Two tasks; tables come one by one, and the same few keys are in all of them."""
    regions = ("eu", "us", "ap", "af")[: 1 + number]
    names = ["a", "b", "final", *([GONE] * deletes)]
    return [
        [
            (chance.randrange(4), chance.choice(regions), chance.choice(names), chance.randrange(12))
            for _ in range(chance.randrange(12))
        ]
        for _ in "ab"
    ]


def _deliver(world: World, number: int, tasks: Any, chance: random.Random) -> None:
    """Deliver a batch, after a failure at some step, and then once more."""
    faults.arm(f"{chance.choice(STEPS[world.kind])}={chance.choice(['error', 'lost'])}@{chance.randrange(1, 5)}")
    try:
        world.run({number: tasks}, schema=SCHEMA)
    except PenstockError:
        faults.arm("")
        world.run({number: tasks}, schema=SCHEMA)
    faults.arm("")
    again = world.run({number: tasks}, schema=SCHEMA)
    assert [each.already for each in again] == [True]


def _position(world: World, number: int) -> int:
    with closing(ledger_of(world.pipeline.plan)) as ledger:
        decided = ((entry, entry.body) for entry in ledger.newest_first())
        return next(
            entry.position
            for entry, body in decided
            if isinstance(body, Decided) and body.decision.batch.batch_id == BatchId(number)
        )


def _replay(tables: Tables, tasks: list[list[Change]], position: int, given: Mapping[str, Any], *, deletes: bool) -> None:
    by_table: dict[str, list[tuple[int, str, int]]] = {}
    for number, region, name, version in (row for rows in tasks for row in rows):
        by_table.setdefault(f"{region}_orders", []).append((number, name, version))
    for table, rows in by_table.items():
        there, sequence = tables.setdefault(table, {}), given.get("sequence_by")
        if given.get("history"):
            kept(there, rows, position, sequence_by=sequence, deletes=deletes)
        elif given["write"] == "insert_if_absent":
            for row in rows:
                there.setdefault(row[0], row)
        else:
            _upsert(there, rows, given, deletes=deletes)


def _upsert(there: dict[int, Any], rows: list[tuple[int, str, int]], given: Mapping[str, Any], *, deletes: bool) -> None:
    in_sequence, counted = "sequence_by" in given, dict[int, tuple[int, str, int]]()
    for row in rows:
        before = counted.get(row[0])
        if before is None or not in_sequence or row[2] >= before[2]:
            counted[row[0]] = row
    for key, row in counted.items():
        old = there.get(key)
        if deletes and row[1] == GONE:
            there.pop(key, None)
        elif old is None or not (("update_when" in given and not replaces(row, old)) or (in_sequence and row[2] < old[2])):
            there[key] = row


def _expected(tables: Tables, given: Mapping[str, Any]) -> dict[str, Counter[Any]]:
    whole = {table: versions(there) if given.get("history") else Counter(there.values()) for table, there in tables.items()}
    return {table: rows for table, rows in whole.items() if rows}


def _found(world: World, given: Mapping[str, Any]) -> dict[str, Counter[Any]]:
    names = ["id", "name", "version", *(["valid_from", "valid_to", "is_current"] if given.get("history") else [])]
    whole = world.found(names)
    return {
        table: Counter((*row[:5], bool(row[5])) if len(row) > 5 else row for row in rows) for table, rows in whole.items() if rows
    }


@pytest.mark.parametrize(
    ("kinds", "one"),
    [(("short", "integer", "long"), 1), (("decimal(5,2)", "decimal(9,2)", "decimal(12,2)"), Decimal("1.00"))],
    ids=["integer", "decimal"],
)
def test_a_table_that_no_row_names_meanwhile_becomes_wider_twice(tmp_path: Path, kinds: tuple[str, ...], one: Any) -> None:
    world = World(tmp_path, "duckdb", schema_changes="widen")
    rows: Any = {0: [[(1, "eu", "a", one), (2, "us", "b", one)]], 1: [[(3, "eu", "c", one)]], 2: [[(4, "us", "d", one)]]}
    for number, wide in enumerate(kinds):
        world.run({number: rows[number]}, schema=spark_schema(id="long", region="string", name="string", version=wide))
    assert {table: len(found) for table, found in world.found().items()} == {"eu_orders": 2, "us_orders": 2}
    assert verify(world.pipeline.plan).ok
