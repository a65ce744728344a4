"""Spark's checkpoint as a user meets it on a bad day, through the command line: exact, or refused with a remedy that helps."""

import random
import shutil
import signal
import sqlite3
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.crash import shared_java
from tests.crash.commandline import Ended, penstock
from tests.crash.errors import assert_continues, run
from tests.crash.killing import await_that, kill_session
from tests.crash.probe import Probe
from tests.crash.world import ACCOUNTS, Row, World, account_rows, database_rows, make_world

pytestmark = [pytest.mark.crash, pytest.mark.spark, pytest.mark.timeout(300)]

SEED = 5


@pytest.fixture
def world(spark: SparkSession, tmp_path: Path) -> World:
    """Batches 0 to 3 are delivered."""
    made = make_world(tmp_path / "world", files=4, rows_per_file=60, seed=SEED, per_trigger=1)
    assert run(made).code == 0
    made.assert_exact()
    return made


def feed(world: World, *, files: int = 2) -> None:
    world.feed(random.Random(f"{SEED} {len(list((world.root / 'incoming').iterdir()))}"), files=files, rows_per_file=40)


def assert_refused(ended: Ended, kind: str, *, code: int = 3, remedy: str) -> None:
    lines = ended.err.splitlines()
    assert ended.code == code, str(ended)
    assert ended.last["error"]["kind"] == kind
    assert len(lines) == 2, ended.err
    assert lines[0].startswith("error: ")
    assert remedy in lines[1]


def remove(world: World, *entries: str) -> None:
    for entry in entries:
        folder, _, name = entry.rpartition("/")
        (world.checkpoint / folder / name).unlink()
        (world.checkpoint / folder / f".{name}.crc").unlink()


def adopt(world: World) -> list[str]:
    """The dry run first, which changes nothing, then the act. What the dry run said."""
    before = history(world)
    said: list[str] = penstock("adopt", str(world.file), "--json").last["consequences"]
    assert history(world) == before
    refused = penstock("adopt", str(world.file), "--yes")
    assert (refused.code, history(world)) == (2, before), "no reason was given"
    done = penstock("adopt", str(world.file), "--yes", "--reason", "the disk was lost", "--json")
    assert (done.code, done.last["done"]) == (0, True), str(done)
    return said


def history(world: World) -> str:
    return penstock("history", str(world.file), "--json").out


def test_the_newest_commit_removed_five_times_changes_nothing(world: World) -> None:
    with Probe(world) as probe:
        remove_newest_commit_five_times(world)
    assert probe.violations == []
    assert_continues(world)


def remove_newest_commit_five_times(world: World) -> None:
    for _ in range(5):
        remove(world, "commits/3")
        again = run(world)
        assert again.code == 0, str(again)
        assert {name: share["already_committed"] for name, share in again.last["sinks"].items()} == {"lake": 1, "warehouse": 1}
        assert (again.last["batches"], again.last["rows_in"]) == (0, 0)
        world.assert_exact()


def test_a_deleted_checkpoint_is_refused_until_a_new_one_is_adopted(world: World) -> None:
    shutil.rmtree(world.checkpoint)
    for _ in range(2):
        assert_refused(run(world), "CheckpointMissing", remedy="penstock adopt")
    world.assert_exact()
    said = adopt(world)
    assert any("TWICE" in sentence for sentence in said)
    (world.root / "delivered").mkdir()
    for file in sorted((world.root / "incoming").iterdir()):  # as the dry run advises: what is still there would come again
        file.rename(world.root / "delivered" / file.name)
    assert_continues(world)


def test_the_checkpoint_of_another_query_is_refused_or_adopted(world: World) -> None:
    other = world.root / "other.yaml"
    text = world.file.read_text().replace("pipeline: crash", "pipeline: other").replace("./state", "./other-state")
    other.write_text(text.replace("./lake/", "./other-lake/").replace("warehouse.db", "other.db"))
    assert penstock("run", str(other), "--json").code == 0
    world.checkpoint.rename(world.root / "right")
    shutil.copytree(world.root / "other-state" / "checkpoint", world.checkpoint)
    assert_refused(run(world), "CheckpointReplaced", remedy="penstock adopt")
    world.assert_exact()
    shutil.rmtree(world.checkpoint)
    shutil.copytree(world.root / "right", world.checkpoint)
    assert_continues(world)
    assert penstock("run", str(other), "--json").code == 0  # it has read the same files, so it can take over
    shutil.rmtree(world.checkpoint)
    shutil.copytree(world.root / "other-state" / "checkpoint", world.checkpoint)
    assert_refused(run(world), "CheckpointReplaced", remedy="penstock adopt")
    adopt(world)
    assert_continues(world)


def test_an_older_copy_is_recognised_or_refused(world: World) -> None:
    shutil.copytree(world.checkpoint, world.root / "older")
    feed(world)
    assert run(world).code == 0
    shutil.copytree(world.checkpoint, world.root / "newest")

    put_back(world, "older")
    again = run(world)
    assert again.code == 0, str(again)
    assert again.last["sinks"]["lake"]["already_committed"] == 2
    world.assert_exact()

    put_back(world, "older")
    for _ in range(2):  # Spark plans two files for batch 4, which held one
        ended = run(world, "--set", "sources.flights.options.maxFilesPerTrigger=2")
        assert_refused(ended, "OffsetsConflict", remedy="put the newest one back")
    world.assert_exact()
    put_back(world, "newest")
    assert_continues(world)


def put_back(world: World, copy: str) -> None:
    shutil.rmtree(world.checkpoint)
    shutil.copytree(world.root / copy, world.checkpoint)


def test_lost_metadata_is_refused_and_the_remedy_helps(world: World) -> None:
    remove(world, "metadata")
    refused = run(world)
    assert_refused(refused, "CheckpointMissing", remedy="--yes` writes the file again")
    assert_refused(penstock("adopt", str(world.file), "--json"), "CheckpointDamaged", remedy="`penstock checkpoint repair ")
    assert "`penstock checkpoint repair" in penstock("status", str(world.file), "--json").last["text"]
    command = refused.err.partition("`penstock ")[2].partition("`")[0]
    assert penstock(*command.split()).code == 0
    assert_continues(world)


@pytest.mark.parametrize(
    ("entry", "kept"),
    [("metadata", 10), ("metadata", 0), ("offsets/3", 20), ("offsets/3", 0)],
    ids=["metadata cut", "metadata empty", "offsets cut", "offsets empty"],
)
def test_a_torn_entry_is_refused_until_it_is_put_back(world: World, entry: str, kept: int) -> None:
    if entry.startswith("offsets"):
        remove(world, "commits/3")
    file = world.checkpoint / entry
    whole = file.read_bytes()
    remove(world, entry)
    file.write_bytes(whole[:kept])
    assert_refused(run(world), "CheckpointDamaged", remedy="from a copy")
    assert_refused(penstock("adopt", str(world.file), "--json"), "CheckpointDamaged", remedy="from a copy")
    world.assert_exact()
    file.write_bytes(whole)
    assert_continues(world)


def test_removed_entries_are_planned_anew_or_refused(world: World) -> None:
    remove(world, "offsets/3", "commits/3")
    assert run(world).code == 0  # planned anew, and recognised
    world.assert_exact()
    remove(world, "commits/1", "commits/2")  # a hole that Spark does not look at
    assert run(world).code == 0
    planned = (world.checkpoint / "offsets/3").read_bytes()
    remove(world, "offsets/3")
    for _ in range(2):
        assert_refused(run(world), "CheckpointDamaged", remedy="from a copy")
    assert_refused(penstock("adopt", str(world.file), "--json"), "CheckpointDamaged", remedy="from a copy")
    (world.checkpoint / "offsets/3").write_bytes(planned)
    assert_continues(world)


def test_a_lost_log_of_input_files_is_refused(world: World) -> None:
    log = world.checkpoint / "sources"
    log.rename(world.root / "sources")
    assert_refused(run(world), "CheckpointDamaged", remedy="from a copy")
    feed(world)
    assert_refused(run(world), "CheckpointDamaged", remedy="from a copy")
    assert not log.exists(), "it is refused before Spark starts, which would make an empty one"
    (world.root / "sources").rename(log)
    assert_continues(world)


# --- which sinks are published when the driver dies

LAKE_IN_THE_THIRD = "parquet.marker.read=stall:60@16"
"""The start looks at the markers of the three accounts twice (lost? of others?), the claim once, then each batch."""
SUBSETS = [
    pytest.param((), f"sqlite.begin=stall:60@3,{LAKE_IN_THE_THIRD}", id="none"),
    pytest.param(("lake",), "sqlite.begin=stall:60@3", id="lake"),
    pytest.param(("warehouse",), LAKE_IN_THE_THIRD, id="warehouse"),
]


@pytest.mark.parametrize(("published", "faults"), SUBSETS)
def test_a_driver_dies_when_some_sinks_are_published(
    spark: SparkSession, tmp_path: Path, published: Sequence[str], faults: str
) -> None:
    """The third batch of a run is decided, and published in exactly these sinks. With both: the test above."""
    world, once = make_world(tmp_path / "world", files=4, rows_per_file=60, seed=SEED, per_trigger=1), tmp_path / "once"
    once.mkdir()
    shown = {sink: 180 if sink in published else 120 for sink in ("lake", "warehouse")}
    with Probe(world) as probe:
        process = world.start("run", str(world.file), "--json", faults=faults, once=once, java=shared_java.environment())
        stalls = faults.count("=stall")
        await_that(
            lambda: len(list(once.iterdir())) == stalls and rows_shown(world) == shown, what="the third batch", driver=process
        )
        kill_session(process)
        shared_java.end_application()
        assert process.returncode == -signal.SIGKILL
        assert rows_shown(world) == shown
        again = run(world)
        assert again.code == 0, str(again)
        assert again.last["recovered"] is True
        world.assert_exact()
        remove_newest_commit_five_times(world)
    assert probe.violations == []
    assert_continues(world)


def rows_shown(world: World) -> dict[str, int]:
    lake = sum((account_rows(world.account(account)) for account in ACCOUNTS), Counter[Row]())
    return {"lake": lake.total(), "warehouse": rows_in_database(world)}


def rows_in_database(world: World) -> int:
    """None of them before the table is made."""
    try:
        return database_rows(world.root / "warehouse.db").total()
    except sqlite3.OperationalError:
        return 0
