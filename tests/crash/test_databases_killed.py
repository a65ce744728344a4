"""One pipeline into accounts and every database, and SIGKILL at random moments: of the driver, of its workers, of each server.

CI runs a slice; `make soak` kills each of them PENSTOCK_SOAK_KILLS times. The seed is printed; PENSTOCK_SEED replays it.
"""

import json
import os
import random
import signal
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.crash import shared_java
from tests.crash.awaited import ended
from tests.crash.commandline import penstock
from tests.crash.killing import await_session_end, kill_at_random, kill_server
from tests.crash.probe import Probe
from tests.crash.shop import assert_sold, new_shop, written
from tests.crash.world import Row, World, make_world
from tests.seed import SEED
from tests.servers.fixtures import server

KILLS = int(os.environ.get("PENSTOCK_SOAK_KILLS", "1"))
FILES, ROWS_PER_FILE = 6, 200
SERVERS = ("postgres", "mysql", "cassandra")
DATABASES = (*SERVERS, "duckdb", "delta", "iceberg")
TOLD = {0, 1, 75}
"""Done, failed, or told to try again: nothing is refused, and nothing is said to be lost or doubled."""

pytestmark = [
    pytest.mark.crash,
    pytest.mark.spark,
    pytest.mark.campaign,
    pytest.mark.timeout(3600),
    pytest.mark.usefixtures("spark"),
]


@pytest.mark.parametrize("victim", ["driver", *SERVERS])
def test_kills_lose_nothing_and_double_nothing_in_any_database(tmp_path: Path, victim: str) -> None:
    generator = random.Random(f"{SEED} {victim}")
    world, shops = _everywhere(tmp_path)
    with Probe(world) as probe:
        ends = _kill_often(world, victim, generator)
    print(f"PENSTOCK_SEED={SEED}: {victim} was killed {KILLS} times, the runs ended with {ends}")
    assert probe.violations == []
    _assert_exact(world, shops)


def test_a_cluster_that_is_down_keeps_nobody_else_back(tmp_path: Path) -> None:
    """The batch waits for it, then fails; on the replay the other sinks have it already, and this one gets it."""
    world, shops = _everywhere(tmp_path)
    world.rewrite(("wait: 40s", "wait: 15s"))
    process, cluster = world.start("run", str(world.file), "--json", java=shared_java.environment()), server("cassandra")
    assert process.stdout is not None
    process.stdout.readline()
    cluster.kill()
    try:
        out, err = ended(process)
    finally:
        cluster.start()
    assert process.returncode == 75, out + err
    assert "Start the cluster" in err
    done = penstock("run", str(world.file), "--json")
    assert done.code == 0, str(done)
    shares = json.loads(done.out.splitlines()[0])["sinks"]
    assert {name for name, share in shares.items() if share["already_committed"]} == {*shares} - {"cassandra"}
    assert shares["cassandra"]["rows"] == ROWS_PER_FILE
    _assert_exact(world, shops)


def _everywhere(root: Path) -> tuple[World, Mapping[str, str]]:
    """Accounts, SQLite and each database, from one pass; and the places of the databases."""
    world = make_world(root, files=FILES, rows_per_file=ROWS_PER_FILE, seed=SEED, per_trigger=1)
    shops = {kind: new_shop(kind, root) for kind in DATABASES}
    world.rewrite(("sinks:\n", "sinks:\n" + "".join(f"  {kind}: {written(kind, shop, root)}\n" for kind, shop in shops.items())))
    return world, shops


def _kill_often(world: World, victim: str, generator: random.Random) -> "Counter[int]":
    """How the runs ended under which something was killed; then one more to the end."""
    ends = Counter[int]()
    while ends.total() < KILLS:
        java = {} if victim == "driver" else shared_java.environment()
        process = world.start("run", str(world.file), "--available-now", "--json", java=java)
        if victim == "driver":
            hit, allowed = kill_at_random(process, generator) is not None, {*TOLD, -signal.SIGKILL}
        else:
            hit, allowed = kill_server(process, server(victim), generator), TOLD
        out, err = ended(process)
        assert process.returncode in (allowed if hit else {0}), out + err
        if hit:
            ends[process.returncode] += 1
            await_session_end(process.pid)
        else:
            world.feed(generator, files=FILES, rows_per_file=ROWS_PER_FILE)
    world.run_to_the_end()
    return ends


def _assert_exact(world: World, shops: Mapping[str, str]) -> None:
    world.assert_exact()
    everything = sum(world.expected.values(), Counter[Row]())
    for kind, shop in shops.items():
        assert_sold(kind, shop, everything)
    world.assert_verified()
