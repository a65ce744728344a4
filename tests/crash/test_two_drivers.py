"""Two drivers on one pipeline: the newer one takes over and finishes; the older one, however late it goes on, changes nothing."""

import random
import shutil
import sqlite3
from collections import Counter
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.crash.commandline import Ended, penstock
from tests.crash.kafka_world import add_topic_sink, assert_shipped
from tests.crash.probe import Probe
from tests.crash.stopping import started, stopped
from tests.crash.world import World, make_world

pytestmark = [pytest.mark.crash, pytest.mark.spark, pytest.mark.timeout(300)]

SEED = 5
RACES = 2

BLIND = "from penstock.run import query; query.FENCE_LOOK_S = 3600.0; import penstock.__main__"
"""A driver without its regular look for a newer run. One that slept for longer than its period looks when it wakes and stops its
own query, in the midst of staging if need be: how much it would have staged depends on when, and is to be harmless anyway."""


def a_world(root: Path) -> World:
    """One file of 60 rows a batch: twelve pieces, in batch 0 staged by tasks, then by the driver."""
    return make_world(root, files=4, rows_per_file=60, seed=SEED, per_trigger=1)


def feed(world: World, *, files: int = 1) -> None:
    world.feed(random.Random(f"{SEED} {len(list((world.root / 'incoming').iterdir()))}"), files=files, rows_per_file=40)


def assert_fenced(older: Ended, *, generation: int) -> None:
    assert older.code == 4, str(older)
    assert older.last["error"]["kind"] == "Fenced"
    assert f"generation {generation} by " in older.last["error"]["message"]
    assert len(older.err.splitlines()) == 2, older.err


def assert_swept_and_exact(world: World, *, left: int = 0) -> None:
    """`left`: how many pieces at least the older driver staged after the newer one's sweep."""
    named, before = sweep(world, done=False), sorted(world.staging())
    assert len(named) == len(before) >= left
    assert sweep(world, "--yes", done=True) == named
    assert sweep(world, "--yes", done=True) == []
    world.assert_exact()


def sweep(world: World, *options: str, done: bool) -> list[str]:
    swept = penstock("sweep", str(world.file), "--json", *options)
    assert (swept.code, swept.last["done"]) == (0, done), str(swept)
    collected: list[str] = swept.last["collected"]
    return collected


def maintain(world: World) -> None:
    """What is published may be removed: here a month of one account."""
    shutil.rmtree(world.account("EWR") / "month=1")
    with closing(sqlite3.connect(world.root / "warehouse.db")) as connection, connection:
        connection.execute("DELETE FROM flights WHERE origin = 'EWR' AND month = 1")
    kept = {row: count for row, count in world.expected["EWR"].items() if row[2] != 1}
    world.expected["EWR"].clear()
    world.expected["EWR"].update(kept)


@pytest.mark.parametrize(
    ("fault", "left"),
    [
        pytest.param("stage.collect@1", 12, id="before tasks stage"),
        pytest.param("stage.report@2", 0, id="staged"),
        pytest.param("rename.move@14", 0, id="some files are published"),
        pytest.param("parquet.marker.place@4", 0, id="files are published but not marked"),
        pytest.param("sqlite.begin@2", 0, id="before the transaction"),
    ],
)
def test_a_driver_that_slept_changes_nothing(spark: SparkSession, tmp_path: Path, fault: str, left: int) -> None:
    """It sleeps as a whole machine does, with JVM and Python workers, in the midst of a batch."""
    world = a_world(tmp_path / "world")
    with stopped(replace(world, program=("-c", BLIND)), fault) as older:
        newer = penstock("run", str(world.file), "--json")
        assert newer.code == 0, str(newer)
        maintain(world)
        assert_fenced(older.go_on(), generation=2)
    assert_swept_and_exact(world, left=left)
    feed(world)
    done = penstock("run", str(world.file), "--json")
    assert done.code == 0, str(done)
    world.assert_exact()
    assert_only_maintenance_is_told(penstock("verify", str(world.file), "--json"))


def assert_only_maintenance_is_told(verified: Ended) -> None:
    assert verified.code == 5
    lake, warehouse = (verified.last["sinks"][name] for name in ("lake", "warehouse"))
    assert {name: account["ok"] for name, account in lake["accounts"].items()} == {"EWR": False, "JFK": True, "LGA": True}
    assert all("is missing" in problem["message"] for problem in lake["problems"])
    missing = Counter(problem["file"].partition("/")[0] for problem in lake["problems"])
    assert set(missing) == {"month=1"}
    assert "lacks" in warehouse["problems"][0]["message"]


def test_a_driver_that_slept_while_another_recovered_only_decides_nothing_more(spark: SparkSession, tmp_path: Path) -> None:
    """Without a newer Spark its own one goes on: plans a batch and stages it. Only the driver's process was stopped."""
    world = a_world(tmp_path / "world")
    with started(world, "rename.move@14", whole=False) as older:
        older.await_that(lambda: world.sold() == 120, what="batch 1 in SQLite, whose lock would keep everybody out")
        older.stop()
        recovered = penstock("recover", str(world.file), "--json")
        assert recovered.code == 0, str(recovered)
        assert recovered.last["batch_id"] == 1
        assert_fenced(older.go_on(), generation=2)
    done = penstock("run", str(world.file), "--json")
    assert done.code == 0, str(done)
    assert_swept_and_exact(world)
    assert penstock("verify", str(world.file), "--json").code == 0


@pytest.mark.parametrize("fault", ["kafka.rows@2", "kafka.mark@3", "kafka.commit@3"])
@pytest.mark.parametrize("whole", [True, False], ids=["another one runs", "another one recovers"])
def test_a_driver_that_slept_in_a_transaction_of_kafka_is_fenced(
    spark: SparkSession, tmp_path: Path, fault: str, *, whole: bool
) -> None:
    """Kafka ends its transaction, the marker shows the batch, and the ledger tells it that it is no longer the one."""
    world = a_world(tmp_path / "world")
    topic = add_topic_sink(world)
    with started(world, fault, whole=whole) as older:
        older.await_that(lambda: world.sold() == 120, what="batch 1 in SQLite, whose lock would keep everybody out")
        older.stop()
        newer = penstock("run" if whole else "recover", str(world.file), "--json")
        assert newer.code == 0, str(newer)
        assert_fenced(older.go_on(), generation=2)
    done = penstock("run", str(world.file), "--json")
    assert done.code == 0, str(done)
    assert_swept_and_exact(world)
    assert_shipped(world, topic)
    assert penstock("verify", str(world.file), "--json").code == 0


def test_a_driver_that_slept_while_it_recovered_changes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    world = a_world(tmp_path / "world")
    assert penstock("run", str(world.file), "--json", faults="rename.move=error@14").code == 1
    with stopped(world, "parquet.marker.read@4") as older:  # the first three look whether the accounts are still there
        newer = penstock("run", str(world.file), "--json")
        assert newer.code == 0, str(newer)
        maintain(world)
        feed(world)
        assert_fenced(older.go_on(), generation=3)
    done = penstock("run", str(world.file), "--json")
    assert done.code == 0, str(done)
    assert_swept_and_exact(world)


def test_a_driver_that_sleeps_with_a_lock_lets_no_other_pass(spark: SparkSession, tmp_path: Path) -> None:
    """SQLite's lock ends with the process or with its transaction; until then nobody can tell what it will do."""
    world = a_world(tmp_path / "world")
    with stopped(world, "ledger.sqlite_insert@3") as older:
        newer = penstock("run", str(world.file), "--json")
        assert newer.code == 75, str(newer)
        assert "locked" in newer.err
        woken = older.go_on()
        assert woken.code == 0, str(woken)
    assert_swept_and_exact(world)
    assert penstock("verify", str(world.file), "--json").code == 0


def test_of_two_that_start_at_the_same_moment_one_is_fenced(spark: SparkSession, tmp_path: Path) -> None:
    """The newer one wins, unless the older one was faster in Spark's checkpoint: then it is told to start again."""
    world = a_world(tmp_path / "world")
    with Probe(world) as probe:
        for _ in range(RACES):
            with started(world, "sqlite.prepare@1") as one, started(world, "sqlite.prepare@1", beside=True) as other:
                for each in (one, other):
                    each.stop()
                for each in (other, one):
                    each.wake()
                ended = {each.code: each for each in (one.go_on(), other.go_on())}
            assert set(ended) in ({0, 4}, {4, 75}), "\n".join(map(str, ended.values()))
            newest = penstock("status", str(world.file), "--json").last["generation"]
            assert_fenced(ended[4], generation=newest)
            if 75 in ended:
                assert "at the same time" in ended[75].err
                assert penstock("run", str(world.file), "--json").code == 0
            assert_swept_and_exact(world)
            feed(world, files=4)
    assert probe.violations == []
