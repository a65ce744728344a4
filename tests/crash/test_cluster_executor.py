"""A Spark standalone cluster of two workers runs the pipeline while executors and their Python workers are SIGKILLed."""

import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from tests.crash import shared_java
from tests.crash.commandline import penstock
from tests.crash.killing import await_another_executor, executors
from tests.crash.probe import Probe
from tests.crash.world import STAGED_BY_TASKS, World, make_world
from tests.spark.cluster import Cluster

pytestmark = [pytest.mark.crash, pytest.mark.cluster, pytest.mark.timeout(600)]

CONF = """
spark:
  master: {url}
  conf:
    spark.ui.enabled: false
    spark.driver.host: 127.0.0.1
    spark.driver.bindAddress: 127.0.0.1
    spark.executor.memory: 700m
    spark.sql.shuffle.partitions: 2
    spark.log.level: "OFF"
"""


def on_cluster(world: World, url: str) -> None:
    text = world.file.read_text()
    head, _, rest = text.partition("spark:\n")
    world.file.write_text(head + CONF.format(url=url).lstrip() + "sources:\n" + rest.partition("sources:\n")[2])


def test_executors_killed_in_mid_run_lose_nothing_and_double_nothing(tmp_path: Path) -> None:
    world = make_world(tmp_path / "world", files=5, rows_per_file=8_000, seed=11, per_trigger=1, wide=True)
    before = set(executors())
    with Cluster(tmp_path) as cluster, Probe(world) as probe:
        on_cluster(world, cluster.url)
        process = replace(world, program=STAGED_BY_TASKS).start("run", str(world.file), "--json", java=shared_java.environment())
        assert process.stdout is not None
        killed: list[int] = []
        for _ in range(2):
            assert process.stdout.readline(), process.stderr.read() if process.stderr else ""
            victim = await_another_executor(before | set(killed))
            os.kill(victim, signal.SIGKILL)
            killed.append(victim)
        out, err = process.communicate(timeout=400)
        assert process.returncode == 0, out + err
    assert probe.violations == []
    swept = penstock("sweep", str(world.file), "--yes", "--json")
    assert swept.code == 0, str(swept)
    world.assert_exact()
    world.assert_verified()
