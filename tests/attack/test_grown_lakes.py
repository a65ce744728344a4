"""Rows gain columns and the sink into a Delta or an Iceberg table has `schema_changes: add`: as with tables of databases."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import pytest
from tests.attack.growing_lake import TABLES, GrowingLake
from tests.attack.test_grown_tables import rows_gain
from tests.unit.table_target import spark_schema

from penstock.core import faults
from penstock.errors import Conflict, PenstockError, PublishFailed, Refused
from penstock.testing.conformance import PIPELINE

BY_KEY = {"write": "upsert", "key": ["id"]}
WAYS = {
    "append": {},
    "upsert": BY_KEY,
    "if absent": {"write": "insert_if_absent", "key": ["id"]},
    "replace": {"write": "replace"},
    "overwrite": {"write": "overwrite_partitions", "partition_by": ["name"]},
}


@pytest.fixture(params=TABLES)
def kind(request):
    return request.param


@pytest.fixture
def growing(tmp_path, kind):
    made = []

    def growing(**settings):
        made.append(GrowingLake(tmp_path, kind, **settings))
        return made[-1]

    yield growing
    faults.arm("")
    for one in made:
        one.bench.close()


class Died(BaseException):
    """The driver is killed there. Its library forks no process, in which it could be killed in earnest; runs of Spark are."""


@pytest.fixture(autouse=True)
def kills(monkeypatch):
    def die():
        raise Died

    monkeypatch.setattr(faults, "_kill", die)


def killed_at(fault, act):
    faults.arm(fault)
    with pytest.raises(Died):
        act()
    faults.arm("")


@pytest.mark.parametrize("outstanding", [True, False], ids=["outstanding", "published"])
@pytest.mark.parametrize("way", WAYS)
def test_older_rows_are_null_in_new_columns(growing, way, outstanding):
    """Rows of files that are rewritten, too. The outstanding batch is published with the columns that it was decided with."""
    table = growing(**WAYS[way])
    table.deliver((1, "a"), (2, "b"), (6, "g"))
    table.deliver((3, "c"), (4, "d"), (1, "a"), killed=outstanding)
    rows_gain(table, more="long", other="string")
    table.deliver((5, "e", 7, "f"), (2, "b", 8, None), (3, "c", None, None))
    old = {1: (1, "a", None, None), 2: (2, "b", None, None), 3: (3, "c", None, None), 4: (4, "d", None, None)}
    old[6] = (6, "g", None, None)
    new = {5: (5, "e", 7, "f"), 2: (2, "b", 8, None), 3: (3, "c", None, None)}
    expected = {
        "append": Counter([*old.values(), old[1], *new.values()]),
        "upsert": Counter((old | new).values()),
        "if absent": Counter((new | old).values()),
        "replace": Counter(new.values()),
        "overwrite": Counter((old | new).values()),
    }
    assert table.content("id", "name", "more", "other") == expected[way]
    assert table.verify().ok
    table.deliver((6, "g", 9, "h"))
    assert table.verify().ok


@pytest.mark.parametrize("way", ["append", "upsert"])
def test_it_is_proved_right_before_and_after(growing, way):
    table = growing(**WAYS[way])
    table.deliver((1, "a"), (2, "b"))
    assert table.verify().ok
    rows_gain(table, more="long")
    table.start()
    assert table.columns_there() == ["id", "name", "more"]
    assert table.verify().ok
    assert table.content("id", "name", "more") == Counter([(1, "a", None), (2, "b", None)])


@pytest.mark.parametrize("outstanding", [True, False], ids=["outstanding", "published"])
@pytest.mark.parametrize("way", ["append", "upsert"])
@pytest.mark.parametrize("how", ["kill", "error", "lost"])
def test_a_start_that_dies_over_it_is_followed_by_one_that_works(growing, way, how, outstanding):
    table = growing(**WAYS[way])
    table.deliver((1, "a"))
    table.deliver((2, "b"), killed=outstanding)
    rows_gain(table, more="long")
    if how == "kill":
        killed_at("lake.add_columns=kill", table.start)
        assert table.columns_there() == ["id", "name"]
    else:
        faults.arm(f"lake.add_columns={how}")
        if how == "error":
            with pytest.raises(PenstockError):
                table.start()
        else:
            table.start()
        faults.arm("")
    table.deliver((3, "c", 7))
    assert table.content("id", "name", "more") == Counter([(1, "a", None), (2, "b", None), (3, "c", 7)])
    assert table.verify().ok


STEPS = {
    "delta": ("lake.add_columns", "deltalog.sync", "delta.look@3", "delta.commit", "deltalog.sync"),
    "iceberg": ("lake.add_columns", "iceberg.look@3", "iceberg.look@3", "iceberg.commit"),
}


@pytest.mark.parametrize("way", ["append", "upsert"])
def test_killed_at_each_step_with_a_decision_of_before_outstanding(growing, kind, way):
    """One driver after the other dies a step further on, between the change of the table and the old batch's publication."""
    table = growing(**WAYS[way])
    table.deliver((1, "a"))
    table.deliver((2, "b"), (1, "z"), killed=True)
    rows_gain(table, more="long")
    for step in STEPS[kind]:
        point, _, occurrence = step.partition("@")
        killed_at(f"{point}=kill{'@' if occurrence else ''}{occurrence}", table.start)
        assert set(table.content("id", "name")) <= {(1, "a"), (1, "z"), (2, "b")}
    table.deliver((3, "c", 7), (2, "y", 8))
    assert table.verify().ok
    expected = {
        "append": [(1, "a", None), (1, "z", None), (2, "b", None), (2, "y", 8), (3, "c", 7)],
        "upsert": [(1, "z", None), (2, "y", 8), (3, "c", 7)],
    }
    assert table.content("id", "name", "more") == Counter(expected[way])


def test_a_start_that_only_recovers_adds_nothing(growing):
    table = growing()
    table.deliver((1, "a"), killed=True)
    rows_gain(table, more="long")
    table.recover()
    assert table.columns_there() == ["id", "name"]
    assert table.content("id", "name") == Counter([(1, "a")])


def test_of_two_drivers_one_adds_it_and_the_other_finds_it(growing, monkeypatch):
    """Each commits on the table without the column; the one that is refused looks again."""
    table = growing()
    table.deliver((1, "a"))
    rows_gain(table, more="long")
    snapshot = type(newest(table))
    real, others = snapshot.add_columns, iter([table.start])

    def overtaken(self, schema, names):
        for start in others:
            start()
            with pytest.raises(Conflict):
                real(self, schema, names)
            raise Conflict("the other one added it")
        return real(self, schema, names)

    monkeypatch.setattr(snapshot, "add_columns", overtaken)
    table.deliver((2, "b", 7))
    assert table.columns_there() == ["id", "name", "more"]
    assert table.content("id", "name", "more") == Counter([(1, "a", None), (2, "b", 7)])
    assert table.verify().ok


def test_columns_are_added_to_the_version_that_was_compared_alone(tmp_path):
    """Somebody else's column of that name, of another type say, may have come meanwhile."""
    table = GrowingLake(tmp_path, "delta")
    table.deliver((1, "a"))
    stale = newest(table)
    table.deliver((2, "b"))
    with pytest.raises(Conflict):
        stale.add_columns(spark_schema(id="long", name="string", more="long"), ["more"])
    assert table.columns_there() == ["id", "name"]
    table.bench.close()


def newest(table):
    return table.rig.log().newest()


def test_drivers_that_start_at_once(growing):
    table = growing()
    table.deliver((1, "a"))
    schema = spark_schema(id="long", name="string", more="long")

    def start(_):
        sink = table.rig.make(**table.settings)
        try:
            sink.prepare(pipeline=PIPELINE, schema=schema)
        finally:
            sink.close()

    with ThreadPoolExecutor(3) as drivers:
        list(drivers.map(start, range(3)))
    assert table.columns_there() == ["id", "name", "more"]
    assert table.verify().ok


@pytest.mark.parametrize("way", ["append", "upsert"])
def test_a_driver_that_runs_beside_goes_on_with_fewer_columns(growing, way):
    """Its batch was staged before the column came, and is published after that."""
    table = growing(**WAYS[way])
    table.deliver((1, "a"), (2, "b"))
    table.deliver_in_one_run([(3, "c")], [(1, "x")], altered_before={})
    grown = GrowingLake.__new__(GrowingLake)
    grown.__dict__ |= table.__dict__
    grown.columns = {**table.columns, "more": "long"}
    table.deliver((4, "d"), killed=True)
    grown.start()
    assert table.verify().ok
    table.deliver((1, "w"))
    assert (4, "d", None) in table.content("id", "name", "more")
    assert table.verify().ok


@pytest.mark.parametrize("way", ["append", "upsert", "overwrite"])
@pytest.mark.parametrize("outstanding", [True, False], ids=["outstanding", "published"])
def test_rows_that_lack_a_column_with_values_are_refused_and_the_remedy_works(growing, way, outstanding):
    """An older driver would write NULL over them. It is refused before it stages, also where recovery has just written them."""
    table = growing(**WAYS[way])
    table.deliver((1, "a"))
    rows_gain(table, more="long")
    table.start()
    table.deliver((1, "a", 7), (2, "b", 8), killed=outstanding)
    del table.columns["more"]
    with pytest.raises(Refused, match="lack column 'more', which has values in") as refused:
        table.deliver((2, "y"))
    assert "`CAST(NULL AS LONG) AS more`" in refused.value.remedy
    table._carry_out(refused.value)
    table.numbers = count(2)
    table.deliver((3, "c", None))
    assert (1, "a", 7) in table.content("id", "name", "more")
    assert (2, "b", 8) in table.content("id", "name", "more")
    assert table.verify().ok


def test_rows_may_lack_a_column_without_values(growing):
    """As after a start with a newer transform that was taken back."""
    table = growing(**BY_KEY)
    table.deliver((1, "a"), (2, "b"))
    rows_gain(table, more="long")
    table.start()
    del table.columns["more"]
    table.deliver((1, "x"))
    assert table.content("id", "name", "more") == Counter([(1, "x", None), (2, "b", None)])
    assert table.verify().ok


def test_a_decided_batch_writes_no_null_over_what_somebody_else_set(growing):
    """The remedy that the error names publishes it."""
    table = growing(**BY_KEY)
    table.deliver((1, "a"), (2, "b"))
    table.deliver((1, "x"), killed=True)
    table.rig.add_column("more", "string")
    fill(table, "more", "mine")
    with pytest.raises(PublishFailed, match="decided without column 'more', but the table has values in it") as refused:
        table.recover()
    assert "set 'more' to NULL in all rows" in refused.value.remedy
    assert table.content("id", "more") == Counter([(1, "mine"), (2, "mine")])
    table.rig.set_null("more")
    table.recover()
    assert table.content("id", "name", "more") == Counter([(1, "x", None), (2, "b", None)])


@pytest.mark.parametrize("by_now", [{"write": "append"}, BY_KEY], ids=["append", "upsert"])
def test_an_empty_batch_clears_no_table_that_is_replaced_no_more(growing, by_now):
    """A run that replaces nothing decided it; every start publishes the newest decision again."""
    table = growing(write="replace")
    table.deliver((1, "a"), (2, "b"))
    table.settings |= by_now
    table.deliver()
    for act in (table.start, table.recover):
        act()
        assert table.content("id", "name") == Counter([(1, "a"), (2, "b")])
    assert table.verify().ok


def test_settings_that_changed_partition_no_decided_rows(growing):
    """`penstock recover` compares no settings: files are written as the table is partitioned."""
    table = growing(**BY_KEY)
    table.deliver((1, "a"), (2, "b"))
    table.deliver((1, "x"), killed=True)
    table.settings["partition_by"] = ["name"]
    table.recover()
    assert table.content("id", "name") == Counter([(1, "x"), (2, "b")])
    table.settings["partition_by"] = []
    assert table.verify().ok


def fill(table, column, text):
    import pyarrow as pa

    rows = table.rig.scan()
    if hasattr(table.rig, "uri"):
        table.rig.table().update(updates={column: f"'{text}'"}, predicate="id IS NOT NULL")
        return
    at = rows.schema.get_field_index(column)
    table.rig.table().overwrite(
        rows.set_column(at, rows.schema.field(at), pa.array([text] * len(rows), rows.schema.field(at).type))
    )
