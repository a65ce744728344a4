"""A topic into accounts, SQLite, PostgreSQL and another topic from one pass, and SIGKILL at random moments: of the driver, of its
workers, of the broker.

CI runs a slice; `make soak` kills each of them PENSTOCK_SOAK_KILLS times. The seed is printed; PENSTOCK_SEED replays it.
"""

import json
import os
import random
import signal
from collections import Counter
from pathlib import Path

import pytest

from tests.crash import shared_java
from tests.crash.awaited import ended
from tests.crash.commandline import penstock
from tests.crash.kafka_watch import Watch
from tests.crash.kafka_world import (
    add_topic_sink,
    assert_shipped,
    expect,
    feed,
    make_kafka_world,
    new_topic,
    produce,
    rows_of,
    transact,
)
from tests.crash.killing import await_session_end, kill_at_random, kill_server
from tests.crash.probe import Probe
from tests.crash.shop import assert_sold, new_shop, written
from tests.crash.world import Row, World
from tests.seed import SEED
from tests.servers.fixtures import server

KILLS = int(os.environ.get("PENSTOCK_SOAK_KILLS", "1"))
VICTIMS, READERS = ("driver", "broker"), ("spark", "python")
CASES = [(victim, reader) for victim in VICTIMS for reader in READERS]
CHOSEN = CASES if "PENSTOCK_SOAK_KILLS" in os.environ else list(zip(VICTIMS, random.Random(SEED).sample(READERS, 2), strict=True))
"""CI kills each victim under one of the readers."""
ROWS = 600
TOLD = {0, 1, 75}
"""Done, failed, or told to try again: nothing is refused, and nothing is said to be lost or doubled."""

pytestmark = [
    pytest.mark.crash,
    pytest.mark.spark,
    pytest.mark.campaign,
    pytest.mark.timeout(3600),
    pytest.mark.usefixtures("spark"),
]


@pytest.mark.parametrize(("victim", "reader"), CHOSEN)
def test_kills_lose_nothing_and_double_nothing(tmp_path: Path, victim: str, reader: str) -> None:
    generator, topic = random.Random(f"{SEED} {victim} {reader}"), new_topic()
    world, shop = make_kafka_world(tmp_path, topic, seed=SEED, more=f"reader: {reader}"), new_shop("postgres", tmp_path)
    shipped = add_topic_sink(world)
    world.rewrite(("sinks:\n", f"sinks:\n  shop: {written('postgres', shop, tmp_path)}\n"))
    more(world, topic, generator)
    with Probe(world) as probe, Watch(server("kafka").bootstrap, shipped) as watch:
        ends = _kill_often(world, topic, victim, generator)
    print(f"PENSTOCK_SEED={SEED}: {victim} was killed {KILLS} times under reader {reader}, the runs ended with {ends}")
    assert probe.violations + watch.violations == []
    world.assert_exact()
    assert_sold("postgres", shop, sum(world.expected.values(), Counter[Row]()))
    assert_shipped(world, shipped)
    world.assert_verified()
    diagnosis = penstock("doctor", str(world.file), "--json")
    assert (diagnosis.code, json.loads(diagnosis.out)["transactions"]) == (0, []), str(diagnosis)


def more(world: World, topic: str, generator: random.Random) -> None:
    """Rows without a transaction, of one that is committed and of one that is aborted: these must not come out."""
    first = sum(rows.total() for rows in world.expected.values())
    rows = rows_of(world, generator, first=first, count=ROWS)
    feed(world, topic, rows[: ROWS // 2])
    transact(topic, rows[: ROWS // 4], commit=False)
    expect(world, rows[ROWS // 2 :])
    transact(topic, rows[ROWS // 2 :], commit=True)


def _kill_often(world: World, topic: str, victim: str, generator: random.Random) -> "Counter[int]":
    """How the runs ended under which something was killed; then one more to the end."""
    ends = Counter[int]()
    while ends.total() < KILLS:
        java = {} if victim == "driver" else shared_java.environment()
        process = world.start("run", str(world.file), "--available-now", "--json", java=java)
        if victim == "driver":
            hit, allowed = kill_at_random(process, generator) is not None, {*TOLD, -signal.SIGKILL}
        else:
            hit, allowed = kill_server(process, server("kafka"), generator), TOLD
        out, err = ended(process)
        assert process.returncode in (allowed if hit else {0}), out + err
        if hit:
            ends[process.returncode] += 1
            await_session_end(process.pid)
        else:
            more(world, topic, generator)
    world.run_to_the_end()
    return ends


def test_rows_of_aborted_transactions_come_out_only_if_asked_for(tmp_path: Path) -> None:
    generator, topic = random.Random(SEED), new_topic()
    world = make_kafka_world(tmp_path, topic, seed=SEED, options="kafka.isolation.level: read_uncommitted")
    rows = rows_of(world, generator, first=0, count=60)
    expect(world, rows)
    transact(topic, rows[:30], commit=False)
    produce(topic, rows[30:])
    done = penstock("run", str(world.file), "--available-now", "--json")
    assert done.code == 0, str(done)
    world.assert_exact()
