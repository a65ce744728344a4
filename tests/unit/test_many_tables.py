"""Many tables from one stream: split, opened on first sight, published whole or table by table, and exact whatever happens."""

import random
import signal
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path

import pytest
from tests.seed import SEED
from tests.unit.many_target import SCHEMA, Pieces, World, expected
from tests.unit.table_target import spark_schema

from penstock.commit.rewind import TakesBack, taken_back
from penstock.core import faults
from penstock.core.model import AccountName, Attempt, BatchId, Generation, Position, SinkName, new_nonce
from penstock.core.unopened import unopened
from penstock.errors import PenstockError, PublishFailed, Refused, StageFailed
from penstock.run.assembly import ledger_of
from penstock.run.operations import recover, verify
from penstock.stage.opening import staged_with_tables
from penstock.support import formatting
from penstock.testing.conformance.story import end, start

ORDERS = SinkName("orders")
BATCHES = {
    0: [[(1, "eu", "a"), (2, "us", None), (3, "eu", "c")], [(4, "us", "d")]],
    1: [[], [(5, "ap", "e"), (6, "eu", "a")]],
    2: [[(7, "us", "g")]],
}
"""Each names a table that the others do not."""


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    yield
    faults.arm("")


@pytest.fixture(params=["sqlite", "delta", "iceberg", "duckdb"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    return World(tmp_path, request.param)


def test_tables_appear_with_their_rows_and_a_replay_changes_nothing(world: World) -> None:
    world.run({0: BATCHES[0], 1: BATCHES[1]})
    later = {1: BATCHES[1], 2: BATCHES[2], 3: [[(8, "af", "h")]]}
    delivered = world.run(later)
    assert [each.already for each in delivered] == [True, False, False]
    whole = {**BATCHES, **later}
    assert world.content() == expected(whole)
    found = verify(world.pipeline.plan)
    assert found.ok, found
    assert {table: each.found.rows for table, each in found.sinks[ORDERS].accounts.items()} == {
        table: rows.total() for table, rows in expected(whole).items()
    }
    states = {each.account: each.state for each in world.pipeline.doctor().accounts if each.sink == ORDERS and each.account}
    assert states == dict.fromkeys(expected(whole), "published")
    assert dict(world.pipeline.history(batch_id=1)[0].accounts[ORDERS]).keys() == {"ap_orders", "eu_orders"}


STEPS = {
    "sqlite": ("tables.open@1", "tables.open@2", "sqlite.move@2", "sqlite.mark@1", "sqlite.mark@3", "sqlite.commit@2"),
    "duckdb": ("tables.open@2", "duckdb.mark@2"),
    "delta": ("tables.open@2", "delta.commit@2", "laketables.next@1"),
    "iceberg": ("tables.open@2", "iceberg.commit@2", "laketables.next@1"),
}


@pytest.mark.parametrize(
    ("kind", "step", "fault"),
    [(kind, step, fault) for kind, steps in STEPS.items() for step in steps for fault in ("error", "lost")],
)
def test_a_failure_at_any_step_is_made_good(tmp_path: Path, kind: str, step: str, fault: str) -> None:
    world, (point, _, time) = World(tmp_path, kind), step.partition("@")
    faults.arm(f"{point}={fault}@{time}")
    try:
        world.run({0: BATCHES[0]})
    except PenstockError:
        faults.arm("")
        recover(world.pipeline.plan)
        world.run({0: BATCHES[0]})
    faults.arm("")
    world.run({1: BATCHES[1], 2: BATCHES[2]})
    assert world.content() == expected(BATCHES)
    assert verify(world.pipeline.plan).ok


def batch_of(chance: random.Random, number: int) -> list[list[tuple[int, str, str]]]:
    """Two tasks; tables come one by one."""
    tables = ("eu", "us", "ap", "af", "zz")[: 2 + number // 2]
    return [
        [(number * 100 + at, chance.choice(tables), "x" * chance.randrange(9)) for at in range(chance.randrange(12))]
        for _ in "ab"
    ]


def deliver_some(directory: str, kind: str, seed: str, first: int, last: int) -> None:
    """What a process does that may be killed."""
    made = {number: batch_of(random.Random(f"{seed} {number}"), number) for number in range(first, last)}
    World(Path(directory), kind).run(made)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("kind", "kills"), [("sqlite", 4), ("delta", 2), ("iceberg", 2)])
def test_random_batches_under_random_kills_are_exact(tmp_path: Path, kind: str, kills: int) -> None:
    seed, chance = f"{SEED} {kind}", random.Random(f"{SEED} {kind} kills")
    print(f"PENSTOCK_SEED={SEED}")
    points = [step.partition("@")[0] for step in STEPS[kind]] + ["ledger.sqlite_commit"]
    upto, killed = 0, 0
    while killed < kills and upto < 3 * kills:
        armed = f"{chance.choice(points)}=kill@{chance.randrange(1, 6)}"
        asked = (str(tmp_path), kind, seed, max(upto - 1, 0), upto + 3)
        killed += end(start(deliver_some, *asked, faults=armed)) == -signal.SIGKILL
        upto = World(tmp_path, kind).decided()
    world = World(tmp_path, kind)
    last = max(upto, 1)
    world.run({number: batch_of(random.Random(f"{seed} {number}"), number) for number in range(max(upto - 1, 0), last + 1)})
    whole = {number: batch_of(random.Random(f"{seed} {number}"), number) for number in range(last + 1)}
    held = {table: rows for table, rows in world.content().items() if rows}  # a table of a batch that was killed may be empty
    assert held == expected(whole)
    assert verify(world.pipeline.plan).ok


@pytest.mark.parametrize("kind", ["sqlite", "delta", "iceberg"])
def test_what_was_staged_for_a_table_that_nobody_names_again_is_swept(tmp_path: Path, kind: str) -> None:
    world = World(tmp_path, kind)
    world.run({0: BATCHES[0]})
    world.stage_only(1, [[(8, "zz", "x"), (9, "eu", "x")]])
    assert world.staged_files()
    world.run({1: BATCHES[1], 2: BATCHES[2]})
    assert world.staged_files() == []
    assert {table: rows for table, rows in world.content().items() if rows} == expected(BATCHES)


def test_a_batch_is_staged_again_once_its_tables_are_open() -> None:
    attempt = Attempt(generation=Generation(1), batch_id=BatchId(0), partition=0, task_attempt=0, nonce=new_nonce())
    waiting = unopened(ORDERS, AccountName("eu_orders"), attempt, rows=3)
    given = iter([Pieces((waiting,)), Pieces((waiting, waiting)), Pieces(())])
    sink = Opening()
    assert staged_with_tables(lambda: next(given), [sink]) == Pieces(())  # type: ignore[list-item]
    assert sink.asked == [["eu_orders"], ["eu_orders"]]
    with pytest.raises(StageFailed, match="name new tables each time"):
        staged_with_tables(lambda: Pieces((waiting,)), [sink])  # type: ignore[list-item]


class Opening:
    """A sink that notes which tables it is to open."""

    name = ORDERS

    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    def use_tables(self, tables: Collection[AccountName]) -> None: ...

    def open_tables(self, tables: Sequence[AccountName]) -> None:
        self.asked.append(list(tables))


class TestWhichTablesThereMayBe:
    @pytest.mark.parametrize(
        ("region", "why"),
        [
            (None, "has no table: a column of {region}_orders is NULL or empty"),
            ("", "has no table: a column of {region}_orders is NULL or empty"),
            ("../../etc/x", "may have letters, digits, _ and - only"),
            ('x"; DROP TABLE eu_orders; --', "may have letters, digits, _ and - only"),
            ("a.b", "may have letters, digits, _ and - only"),
            ("é", "may have letters, digits, _ and - only"),
            ("x" * 200, "of 207 characters, and 63 are possible"),
            ("EU", "which does not match `tables.pattern`"),
        ],
    )
    def test_a_value_that_makes_no_table_fails_the_batch(self, tmp_path: Path, region: str | None, why: str) -> None:
        world = World(tmp_path, "sqlite")
        with pytest.raises(StageFailed) as failed:
            world.run({0: [[(1, "eu", "a"), (2, region, "b")]]})
        assert "1 rows of the batch are in no table of sink 'orders': one " in failed.value.message
        assert why in failed.value.message
        world.configure(unrouted="drop")
        world.run({0: [[(1, "eu", "a"), (2, region, "b")]]})
        assert world.content() == {"eu_orders": Counter([(1, "eu", "a")])}
        assert verify(world.pipeline.plan).ok
        assert world.pipeline.status().dropped == {"sinks.orders": {"unrouted": 1}}
        assert "1 row by sinks.orders.unrouted" in (formatting.dropped(world.pipeline.history()[0].dropped) or "")

    def test_a_list_allows_its_tables_only(self, tmp_path: Path) -> None:
        world = World(tmp_path, "sqlite", tables=["eu_orders", "us_orders"])
        world.run({0: BATCHES[0]})
        with pytest.raises(StageFailed, match="names table 'ap_orders', which `tables` does not list"):
            world.run({1: BATCHES[1]})
        world.configure(tables=["eu_orders", "us_orders", "ap_orders"])
        world.run({1: BATCHES[1]})
        assert world.content() == expected({0: BATCHES[0], 1: BATCHES[1]})

    @pytest.mark.parametrize("kind", ["sqlite", "delta"])
    def test_names_that_differ_by_case_only_are_never_two_tables(self, tmp_path: Path, kind: str) -> None:
        world = World(tmp_path, kind, tables={"pattern": "[A-Za-z]+_orders"}, unrouted="drop")
        world.run({0: [[(1, "EU", "a"), (2, "eu", "b")]], 1: [[(3, "eu", "c"), (4, "EU", "d"), (5, "Eu", "e")]]})
        assert world.content() == {"EU_orders": Counter([(1, "EU", "a"), (4, "EU", "d")])}
        assert [row.dropped for row in world.pipeline.history(limit=2)] == [
            {"sinks.orders": {"unrouted": rows}} for rows in (2, 1)
        ]
        world.configure(tables={"pattern": "[A-Za-z]+_orders"})
        with pytest.raises(StageFailed, match="which differs from table 'EU_orders' by case only"):
            world.run({2: [[(6, "eu", "a")]]})

    def test_there_are_at_most_so_many(self, tmp_path: Path) -> None:
        world = World(tmp_path, "sqlite", tables={"pattern": ".*", "at_most": 2}, unrouted="drop")
        world.run({0: BATCHES[0]})
        with pytest.raises(StageFailed, match=r"Rows are for 1 new tables .* With 2 that are there they would be more than 2"):
            world.run({1: BATCHES[1]})
        assert world.content() == expected({0: BATCHES[0]})
        world.configure(tables={"pattern": ".*", "at_most": 3})
        world.run({1: BATCHES[1]})
        assert world.content() == expected({0: BATCHES[0], 1: BATCHES[1]})

    @pytest.mark.parametrize("kind", ["sqlite", "delta", "iceberg"])
    def test_what_is_decided_for_a_table_is_published_though_it_is_not_allowed_any_more(self, tmp_path: Path, kind: str) -> None:
        world = World(tmp_path, kind)
        world.run({0: BATCHES[0]})
        with pytest.raises(PublishFailed, match="the driver ends here"):
            world.run({1: BATCHES[1]}, publishes=False)
        world.configure(tables=["eu_orders", "us_orders"])
        world.run({1: BATCHES[1], 2: BATCHES[2]})
        assert world.content() == expected(BATCHES)
        assert verify(world.pipeline.plan).ok
        world.configure()
        assert verify(world.pipeline.plan).ok

    def test_tables_may_not_be_created_where_the_file_says_so(self, world: World) -> None:
        world.configure(create=False)
        with pytest.raises(PenstockError, match=r"eu_orders|cannot be used|is gone"):
            world.run({0: BATCHES[0]})
        world.configure()
        world.run({0: BATCHES[0]})
        world.configure(create=False)
        world.run({1: [[(9, "eu", "x")]]})


class TestWhoseTablesTheyAre:
    def test_a_table_of_another_sink_is_refused_before_the_batch_is_decided(self, world: World) -> None:
        other = World(world.directory, world.kind, **_one_table(world.kind), tables=None)
        other.file.write_text(
            other.file.read_text().replace("pipeline: shop", "pipeline: other").replace("ledger.db", "theirs.db")
        )
        other.pipeline = type(other.pipeline).from_file(other.file)
        other.run({0: [[(1, "eu", "theirs")]]})
        world.configure()
        with pytest.raises(Refused):
            world.run({0: BATCHES[0]})
        assert world.decided() == 0
        assert {table: rows for table, rows in world.content().items() if rows} == {"eu_orders": Counter([(1, "eu", "theirs")])}

    def test_a_driver_that_slept_changes_nothing(self, world: World) -> None:
        """Its batch has a table that it opened, and one that a newer driver fills meanwhile."""
        world.run({0: BATCHES[0]})
        late = [[(99, "zz", "older"), (98, "eu", "older")]]
        with pytest.raises(PenstockError):
            world.run({1: late}, before_deciding=lambda: _run(world, 1))
        world.run({1: BATCHES[1], 2: BATCHES[2]})
        assert {table: rows for table, rows in world.content().items() if rows} == expected(BATCHES)

    def test_another_ledger_is_refused(self, world: World) -> None:
        world.run({0: BATCHES[0]})
        world.ledger = "sqlite:///another.db"
        world.configure()
        with pytest.raises(Refused):
            world.run({0: BATCHES[0]})
        assert world.content() == expected({0: BATCHES[0]})

    def test_a_template_that_was_changed_is_refused(self, world: World) -> None:
        world.run({0: BATCHES[0]})
        key = "path" if world.kind == "delta" else "table"
        world.configure(
            **{key: {"delta": "./lake/new_{region}", "iceberg": "shop.new_{region}"}.get(world.kind, "new_{region}")},
            tables={"pattern": ".*"},
        )
        before = world.tail()
        with pytest.raises(Refused, match="filled table"):
            world.run({1: BATCHES[1]})
        assert world.tail() == before, "the start is refused before it fences"
        assert world.content() == expected({0: BATCHES[0]})

    def test_a_table_that_is_gone_is_refused(self, tmp_path: Path) -> None:
        world = World(tmp_path, "sqlite")
        world.run({0: BATCHES[0]})
        _execute(world, "DROP TABLE us_orders")
        assert not verify(world.pipeline.plan).ok
        with pytest.raises(Refused, match="'us_orders' is gone, and 2 rows with it"):
            world.run({1: BATCHES[1]})

    @pytest.mark.parametrize("where", ["sink = 'orders'", "sink = 'orders/eu_orders'", "1"])
    def test_a_marker_that_is_gone_is_refused(self, tmp_path: Path, where: str) -> None:
        world = World(tmp_path, "sqlite")
        world.run({0: BATCHES[0]})
        _execute(world, f"DELETE FROM penstock_marker WHERE {where}")
        with pytest.raises(Refused):
            world.run({0: BATCHES[0]})
        assert world.content() == expected({0: BATCHES[0]})


class TestWhatVerifySees:
    @pytest.mark.parametrize(
        ("statement", "wrong"),
        [
            ("DELETE FROM eu_orders WHERE id = 1", {"eu_orders"}),
            ("INSERT INTO us_orders SELECT * FROM us_orders WHERE id = 2", {"us_orders"}),
            ("UPDATE ap_orders SET name = 'other'", {"ap_orders"}),
            (
                "INSERT INTO us_orders SELECT * FROM eu_orders WHERE id = 1; DELETE FROM eu_orders WHERE id = 1",
                {"eu_orders", "us_orders"},
            ),
        ],
    )
    def test_rows_lost_doubled_changed_or_moved(self, tmp_path: Path, statement: str, wrong: set[str]) -> None:
        world = World(tmp_path, "sqlite")
        world.run(BATCHES)
        _execute(world, statement)
        found = verify(world.pipeline.plan)
        assert {table for table, each in found.sinks[ORDERS].accounts.items() if not each.ok} == wrong
        assert {problem.account for problem in found.sinks[ORDERS].problems} == wrong

    def test_one_marker_covers_all_tables(self, tmp_path: Path) -> None:
        world = World(tmp_path, "sqlite")
        world.run(BATCHES)
        marks = dict(_execute(world, "SELECT sink, batch_id || ' ' || rows_decided FROM penstock_marker"))
        assert marks == {"orders": "2 7", "orders/ap_orders": "1 1", "orders/eu_orders": "1 3", "orders/us_orders": "2 3"}


@pytest.mark.parametrize(("kind", "given"), [("sqlite", {"batch_column": "batch"}), ("delta", {}), ("iceberg", {})])
def test_batches_are_taken_back_from_every_table(tmp_path: Path, kind: str, given: dict[str, str]) -> None:
    world = World(tmp_path, kind, **given)
    world.run(BATCHES)
    with closing(ledger_of(world.pipeline.plan)) as ledger:
        tail = ledger.tail()
        assert tail is not None
        first = next(entry.position for entry in ledger.newest_first() if entry.position == 2)
        taken = taken_back(ledger, ORDERS, after=first, before=Position(tail.position + 1), generation=tail.generation)
    for _ in range(2):
        sink = world.sink()
        assert isinstance(sink, TakesBack)
        with closing(sink):
            sink.use_row_digest(tail.summary.row_digest)  # type: ignore[attr-defined]
            if _ == 0:
                sink.require_taken_back_exactly(taken)
            sink.take_back(taken)
        assert {table: rows for table, rows in world.content().items() if rows} == expected({0: BATCHES[0]})


class TestWaysOfWriting:
    @pytest.mark.parametrize("kind", ["sqlite", "delta", "iceberg"])
    def test_each_table_is_changed_by_its_key(self, tmp_path: Path, kind: str) -> None:
        world = World(tmp_path, kind, deletes=True, write="upsert", key=["id"], delete_when="name = 'gone'")
        world.run(
            {0: [[(1, "eu", "a"), (1, "us", "b"), (2, "eu", "c")]], 1: [[(1, "eu", "new"), (2, "eu", "gone"), (3, "ap", "d")]]}
        )
        assert world.content() == {
            "eu_orders": Counter([(1, "eu", "new")]),
            "us_orders": Counter([(1, "us", "b")]),
            "ap_orders": Counter([(3, "ap", "d")]),
        }
        assert verify(world.pipeline.plan).ok

    @pytest.mark.parametrize("kind", ["sqlite", "delta"])
    def test_columns_are_added_to_every_table(self, tmp_path: Path, kind: str) -> None:
        world = World(tmp_path, kind, schema_changes="add")
        world.run({0: BATCHES[0]})
        wider = spark_schema(id="long", region="string", name="string", extra="long")
        world.run({1: [[(8, "eu", "x", 5), (9, "ap", "y", None)]]}, schema=wider)  # type: ignore[list-item]
        assert world.content() == expected({0: BATCHES[0], 1: [[(8, "eu", "x"), (9, "ap", "y")]]})
        assert verify(world.pipeline.plan).ok
        with pytest.raises(Refused):
            world.run({2: BATCHES[2]}, schema=SCHEMA)

    def test_a_sink_in_the_ledgers_file_publishes_in_its_transaction(self, tmp_path: Path) -> None:
        world = World(tmp_path, "sqlite", ledger="sqlite:///shop.db")
        for step in ("tables.open@2", "ledger.sqlite_commit@3", "sqlite.mark@2"):
            point, _, time = step.partition("@")
            faults.arm(f"{point}=lost@{time}")
            with suppress(PenstockError):
                world.run({0: BATCHES[0]})
            faults.arm("")
        world.run({0: BATCHES[0], 1: BATCHES[1], 2: BATCHES[2]})
        assert world.content() == expected(BATCHES)
        assert verify(world.pipeline.plan).ok


def _run(world: World, number: int) -> None:
    world.run({number: BATCHES[number]})


def _one_table(kind: str) -> dict[str, str]:
    return {"path": "./lake/eu_orders"} if kind == "delta" else {"table": "shop.eu_orders" if kind == "iceberg" else "eu_orders"}


def _execute(world: World, script: str) -> list[tuple[object, ...]]:
    import sqlite3

    with closing(sqlite3.connect(world.directory / "shop.db", isolation_level=None)) as connection:
        found: list[tuple[object, ...]] = []
        for statement in script.split(";"):
            found = connection.execute(statement).fetchall()
        return found
