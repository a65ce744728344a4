"""Tasks that are killed, fail and run twice leave garbage beside the table, and every row once inside of it."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.reading import ROOT
from tests.crash import shared_java
from tests.spark.cluster import Cluster

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.log.level": "OFF",
    "spark.executor.memory": "600m",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


def deliver(tmp_path: Path, master: str, faults: str, **conf: str) -> dict[str, object]:
    """Run `attempts` with `faults` armed, each of which fires once in all processes."""
    (tmp_path / "fired").mkdir()
    environment = {"PENSTOCK_FAULTS": faults, "PENSTOCK_FAULTS_ONCE": str(tmp_path / "fired")}
    settings = {**SETTINGS, **{key.replace("_", "."): value for key, value in conf.items()}}
    command = ["-m", "tests.spark.attempts", master, str(tmp_path), json.dumps(settings)]
    done = shared_java.run(command, directory=ROOT, more=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    assert [path.name for path in (tmp_path / "fired").iterdir()] == [re.split("[:@]", faults)[0]]
    result: dict[str, object] = json.loads((tmp_path / "result.json").read_text())
    return result


@pytest.mark.parametrize("fault", ["stage.start=error", "stage.report=error", "stage.report=kill", "parquet.stage.seal=kill"])
def test_a_task_that_fails_is_repeated(tmp_path: Path, fault: str) -> None:
    result = deliver(tmp_path, "local[2,3]", fault)
    garbage = 0 if fault == "stage.start=error" else 2
    assert result == {"rows": 4_000, "decided": 8, "staged": 8 + garbage, "exact": True}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.mark.cluster
def test_a_task_that_stalls_is_overtaken_by_another(tmp_path: Path, cluster: Cluster) -> None:
    """The slow one has everything staged, under names of its own, if it is given up; whether it is, Spark's scheduler decides."""
    result = deliver(
        tmp_path,
        cluster.url,
        "stage.report=stall:20",
        spark_speculation="true",
        spark_speculation_multiplier="1.1",
        spark_speculation_quantile="0.5",
        spark_speculation_interval="100ms",
        spark_speculation_minTaskRuntime="10ms",
    )
    assert result.pop("staged") in {8, 10}
    assert result == {"rows": 4_000, "decided": 8, "exact": True}


@pytest.mark.cluster
def test_a_lost_python_worker_on_another_host(tmp_path: Path, cluster: Cluster) -> None:
    result = deliver(tmp_path, cluster.url, "stage.report=kill")
    assert result == {"rows": 4_000, "decided": 8, "staged": 10, "exact": True}
