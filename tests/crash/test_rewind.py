"""A real pipeline is rewound, killed at every step of it, and goes on: each row comes once, also where a sink stayed ahead."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.crash.awaited import ended
from tests.crash.commandline import penstock
from tests.crash.world import ACCOUNTS, World, account_rows, make_world

pytestmark = [pytest.mark.crash, pytest.mark.spark, pytest.mark.timeout(300)]

SEED = 11
STEPS = (
    *("ledger.sqlite_insert", "rewind.sink", "rewind.file_unlink", "rewind.file_sync", "rewind.checkpoint"),
    *("checkpoint.keep", "checkpoint.record", "checkpoint.guard", "checkpoint.change", "checkpoint.done", "checkpoint.release"),
    "rewind.finish",
)


@pytest.fixture
def world(spark: SparkSession, tmp_path: Path) -> World:
    """Six batches of a file each are delivered, by a process that has ended."""
    made = make_world(tmp_path / "world", files=6, rows_per_file=40, seed=SEED, per_trigger=1)
    assert made.run_with("").code == 0
    return made


def test_killed_at_every_step_it_is_finished_by_the_same_command(world: World) -> None:
    require_refused_first(world)
    before = {account: account_rows(world.account(account)) for account in ACCOUNTS}
    words = ("rewind", str(world.file), "--to-batch", "1", "--keep", "warehouse", "--yes")
    for step in STEPS:
        killed = world.start(*words, faults=f"{step}=kill")
        out, err = ended(killed)
        assert killed.returncode == -9, (step, out, err)
    done = penstock(*words, "--json")
    assert (done.code, done.last["done"]) == (0, True), str(done)
    assert sum(account_rows(world.account(account)).total() for account in ACCOUNTS) == 2 * 40
    world.assert_verified()
    status = penstock("status", str(world.file), "--json").last
    assert (status["health"], status["last_batch_id"], status["ahead"]) == ("ok", 1, {"warehouse": 5})
    rows = penstock("history", str(world.file), "--json").last
    assert [row["batch_id"] for row in rows if row["kind"] == "rewound"] == [1]
    assert [row["batch_id"] for row in rows if row["taken_back_at"] is not None] == [5, 4, 3, 2]
    world.run_to_the_end()
    assert {account: account_rows(world.account(account)) for account in ACCOUNTS} == before
    world.assert_exact()
    world.assert_verified()


def require_refused_first(world: World) -> None:
    """What cannot be done exactly is named, and nothing is changed."""
    listing = {account: world.listing(account) for account in ACCOUNTS}
    asked = penstock("rewind", str(world.file), "--to-batch", "1")
    assert asked.code == 3, str(asked)
    assert "the sink has no `batch_column`" in asked.out
    refused = penstock("rewind", str(world.file), "--to-batch", "1", "--yes")
    assert refused.code == 3
    assert "`--keep warehouse`" in refused.err
    incoming = world.root / "incoming"
    incoming.rename(world.root / "elsewhere")
    lost = penstock("rewind", str(world.file), "--to-batch", "4", "--keep", "warehouse", "--yes")
    assert lost.code == 3, str(lost)
    assert "gone are 1 of 1 files of batch 5 of source flights" in lost.err
    (world.root / "elsewhere").rename(incoming)
    assert {account: world.listing(account) for account in ACCOUNTS} == listing


def test_a_table_that_tells_batches_apart_loses_them_too(spark: SparkSession, tmp_path: Path) -> None:
    world = make_world(tmp_path / "world", files=5, rows_per_file=40, seed=SEED, per_trigger=1)
    world.rewrite(("    table: flights\n", "    table: flights\n    batch_column: written_by\n"))
    assert penstock("run", str(world.file), "--json").code == 0
    for to_batch in (3, 0):
        done = penstock("rewind", str(world.file), "--to-batch", str(to_batch), "--yes", "--reason", "a wrong join")
        assert done.code == 0, str(done)
        assert f"Rewound: the pipeline goes on with batch {to_batch + 1}." in done.out
        world.assert_verified()
        if to_batch:
            world.rewrite(("maxFilesPerTrigger: 1", "maxFilesPerTrigger: 2"))
        assert penstock("run", str(world.file), "--json").code == 0
        penstock("sweep", str(world.file), "--yes")
        world.assert_exact()
        world.assert_verified()
