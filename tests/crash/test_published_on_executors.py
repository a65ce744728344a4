"""What executors publish, and SIGKILL of driver, executors and Python workers, in their tasks above all; a reader watches.

Into Kafka, Cassandra and an HTTP endpoint, in one pipeline.

CI kills once; `make soak` kills PENSTOCK_SOAK_KILLS times on a standalone cluster. The seed is printed; PENSTOCK_SEED
replays it.
"""

import json
import os
import random
import signal
import subprocess
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from tests.conformance.http_rig import endpoint
from tests.crash import shared_java
from tests.crash.awaited import ended
from tests.crash.kafka_watch import Watch
from tests.crash.kafka_world import COLUMNS, add_topic_sink, assert_shipped
from tests.crash.killing import executors, let_pass, parents_of, python_daemons
from tests.crash.shop import assert_sold, new_shop, written
from tests.crash.test_cluster_executor import on_cluster
from tests.crash.world import STAGED_BY_TASKS, Row, World, assert_same, make_world
from tests.seed import SEED
from tests.servers.fixtures import server
from tests.spark.cluster import Cluster

KILLS = int(os.environ.get("PENSTOCK_SOAK_KILLS", "1"))
IN_TASKS = (
    "publish.task",
    "publish.report",
    *(f"kafka.{step}" for step in ("init", "read", "rows", "mark", "commit")),
    *("cassandra.read", "cassandra.write", "http.request"),
    "spool.read",
)
LANES, FILES, ROWS = 4, 4, 4_000
TOLD = {0, 1, 75}

pytestmark = [
    pytest.mark.crash,
    pytest.mark.spark,
    pytest.mark.cluster,
    pytest.mark.campaign,
    pytest.mark.timeout(7200),
    pytest.mark.usefixtures("spark"),
]


def world_of(directory: Path, *, files: int, shop: str, url: str) -> tuple[World, str]:
    """Each file is two tasks, whose pieces are too large for the decision; two files are a batch."""
    world = make_world(directory, files=files, rows_per_file=ROWS, seed=SEED, wide=True)
    topic = add_topic_sink(world)
    hook = f"{{type: http, url: '{url}', receiver: idempotent, rows_per_request: 200, concurrency: {LANES}}}"
    world.rewrite(
        ("sinks:\n", f"sinks:\n  cassandra: {written('cassandra', shop, directory)}\n  hook: {hook}\n"),
        ("{type: kafka", f"{{type: kafka, lanes: {LANES}"),
        ("trigger:", "publish_on: executors\ntrigger:"),
        ("spark.log.level", "spark.sql.files.maxPartitionBytes: 400k, spark.sql.files.openCostInBytes: 0, spark.log.level"),
    )
    return replace(world, program=STAGED_BY_TASKS), topic


def test_kills_on_a_cluster_that_speculates_lose_nothing_and_double_nothing(tmp_path: Path) -> None:
    generator, killed, ends = random.Random(SEED), Counter[str](), Counter[int]()
    shop = new_shop("cassandra", tmp_path)
    with endpoint() as (url, received), Cluster(tmp_path) as cluster:
        world, topic = world_of(tmp_path / "world", files=FILES, shop=shop, url=url)
        with Watch(server("kafka").bootstrap, topic) as watch:
            on_cluster(world, cluster.url)
            world.rewrite(("spark.executor.memory: 700m", f"spark.executor.memory: 700m\n    {_SPECULATES}"))
            while killed.total() < KILLS:
                code, victims = _run_and_kill(world, generator, wanted=KILLS - killed.total())
                killed.update(victims)
                ends[code] += 1
                world.feed(generator, files=2, rows_per_file=ROWS)
            world.run_to_the_end()
    print(f"PENSTOCK_SEED={SEED}: killed {dict(killed)}, the runs ended with {dict(ends)}")
    assert watch.violations == []
    world.assert_exact()
    assert_shipped(world, topic)
    everything = sum(world.expected.values(), Counter[Row]())
    assert_sold("cassandra", shop, everything)
    assert_same("hook", found=Counter(map(_row, received.lines())), expected=everything)
    world.assert_verified()


def _row(line: str) -> Row:
    row = json.loads(line)
    return tuple(row[column] for column in COLUMNS)


_SPECULATES = "\n    ".join(
    (
        "spark.task.maxFailures: 20",
        "spark.speculation: true",
        "spark.speculation.interval: 20ms",
        "spark.speculation.multiplier: 1.01",
        "spark.speculation.quantile: 0.25",
        "spark.speculation.minTaskRuntime: 20ms",
        "spark.sql.files.maxPartitionBytes: 400k",
        "spark.sql.files.openCostInBytes: 0",
    )
)


def _once(world: World) -> Path:
    once = world.root / "once"
    once.mkdir(exist_ok=True)
    for fired in once.iterdir():
        fired.unlink()
    return once


def _run_and_kill(world: World, generator: random.Random, *, wanted: int) -> tuple[int, Sequence[str]]:
    """One run. A task is killed at a fault point, and after each batch that is told an executor, a worker or the driver is."""
    fault, once = f"{generator.choice(IN_TASKS)}=kill@{generator.randrange(1, 3)}", _once(world)
    process = world.start("run", str(world.file), "--json", faults=fault, once=once, java=shared_java.environment())
    assert process.stdout is not None
    victims = list[str]()
    while len(victims) < wanted and process.stdout.readline():
        let_pass(process, generator.uniform(0, 1.5))
        kind = generator.choice(["driver", "executor", "worker"])
        if process.poll() is None and _killed(process, kind, generator):
            victims.append(kind)
    _, err = ended(process, within_s=3_600)
    shared_java.end_application()
    victims += [f"{fired.name.split('=')[0]}" for fired in once.iterdir()][: wanted - len(victims)]
    assert process.returncode in {*TOLD, -signal.SIGKILL}, err
    return process.returncode, victims


def _killed(process: "subprocess.Popen[str]", kind: str, generator: random.Random) -> bool:
    if kind == "driver":
        process.kill()
        return True
    found = executors() if kind == "executor" else _workers_of_executors()
    if not found:
        return False
    with suppress(ProcessLookupError):
        os.kill(generator.choice(found), signal.SIGKILL)
    return True


def _workers_of_executors() -> Sequence[int]:
    there = set(executors())
    return [pid for pid in python_daemons() if there.intersection(parents_of(pid))]
