"""A disk that is full at every write in turn: on a small tmpfs, with a little more room at every start until one succeeds.

Every start that fails says which disk, and nothing is lost or doubled by any number of them.
"""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.crash.commandline import penstock
from tests.crash.errors import assert_between, assert_continues, begun, content, feed, new_world, run
from tests.crash.mounting import SmallDisk, small_disk
from tests.crash.world import World

pytestmark = [pytest.mark.crash, pytest.mark.spark, pytest.mark.timeout(240)]

STEPS = 40
"""Starts until one must have succeeded."""


def deliver_with_little_room(world: World, disk: SmallDisk, place: str, *, pages: int) -> set[str]:
    """Start with 0 pages of room, then with `pages` more each time, until a run succeeds. The kinds of failure on the way."""
    before, kinds = content(world), set[str]()
    for step in range(STEPS):
        disk.leave(step * pages)
        ended = run(world)
        disk.make_room()
        assert_between(world, before)
        if ended.code == 0:
            return kinds
        kinds.add(ended.last["error"]["kind"])
        assert_full(ended.err, world.root / place)
        if "StageFailed" in kinds:  # else the next start sweeps what this one has staged, and has more room than meant
            assert penstock("recover", str(world.file)).code == 0
    raise AssertionError(f"{STEPS * pages} pages were not enough for one small batch")


def assert_full(err: str, place: Path) -> None:
    happened, remedy = err.splitlines()
    assert happened.startswith("error: ")
    assert str(place) in happened, happened
    assert "the disk is full" in happened, happened
    assert remedy.startswith("Make room on it (bytes and inodes)"), remedy


CASES = [
    pytest.param("lake", 1, {"StageFailed", "PublishFailed"}, id="accounts and staging"),
    pytest.param("state", 4, {"Failed"}, id="home"),
    pytest.param("ledger", 4, {"Failed"}, id="ledger"),
    pytest.param("entries", 1, {"Failed"}, id="ledger in a directory"),
    pytest.param("database", 1, {"NotPublishedYet"}, id="database"),
    pytest.param("state/checkpoint", 1, {"Failed"}, id="checkpoint"),
]


@pytest.mark.parametrize(("place", "pages", "kinds"), CASES)
def test_a_full_disk(spark: SparkSession, tmp_path: Path, place: str, pages: int, kinds: set[str]) -> None:
    world = new_world(tmp_path)
    with small_disk(world.root / place) as disk:
        if place in {"ledger", "entries"}:
            url = "sqlite:///ledger/ledger.db" if place == "ledger" else "./entries"
            world.file.write_text(world.file.read_text() + f"ledger: {url}\n")
        if place == "database":
            (world.root / "warehouse.db").symlink_to(world.root / "database" / "warehouse.db")
        begun(world)
        assert deliver_with_little_room(world, disk, place, pages=pages) >= kinds
        assert_continues(world)


def test_a_full_spool(spark: SparkSession, tmp_path: Path) -> None:
    """The batch is more than travels in the decision."""
    world = new_world(tmp_path, wide=True)
    with small_disk(world.root / "state" / "spool") as disk:
        begun(world)
        feed(world, rows=3_000)
        assert run(world, "--batches", "1").code == 0
        assert deliver_with_little_room(world, disk, "state/spool", pages=40) == {"StageFailed"}
        assert_continues(world)


def test_a_disk_without_room_from_the_start(spark: SparkSession, tmp_path: Path) -> None:
    """The pipeline has never run."""
    world = new_world(tmp_path)
    with small_disk(world.root / "state") as disk:
        assert "Failed" in deliver_with_little_room(world, disk, "state", pages=8)
        assert_continues(world)
