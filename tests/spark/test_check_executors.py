"""`penstock check` looks at every account also from where tasks run: on a cluster whose executors lack what the driver has."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock.run.pipeline import Pipeline
from penstock.sink.parquet import directory_account
from tests.servers.fixtures import accounts_on
from tests.spark.cluster import Cluster

PIPELINE = """
pipeline: flights
home: ./state
sources: {{events: {{format: rate}}}}
sinks:
  lake:
    type: parquet
    accounts: {accounts}
    route: {{hash: [value]}}
spark:
  master: {master}
  conf: {conf}
"""
BOTH_WORKERS = {"spark.cores.max": "2", "spark.scheduler.minRegisteredResourcesRatio": "1.0", "spark.executor.memory": "700m"}


def pipeline_file(directory: Path, accounts: Mapping[str, Any], *, master: str, conf: Mapping[str, str]) -> Path:
    file = directory / "pipeline.yaml"
    file.write_text(PIPELINE.format(accounts=json.dumps(accounts), master=master, conf=json.dumps(conf)))
    return file


def url_and_options(kind: str) -> dict[str, Any]:
    (place, _) = accounts_on(looked=kind)["looked"]
    return dict(place.settings)


@pytest.mark.cluster
def test_what_executors_lack_is_told_account_by_account(tmp_path: Path) -> None:
    """The endpoint of S3 and the library for Google's store are there for the driver only."""
    amazon, google = url_and_options("s3"), url_and_options("gs")
    endpoint = amazon["options"].pop("endpoint")
    amazon["options"]["attempts"] = "1"
    broken = tmp_path / "broken" / "google"
    broken.mkdir(parents=True)
    (broken / "__init__.py").touch()
    path = os.pathsep.join([str(broken.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    lacking = {"spark.executorEnv.AWS_ENDPOINT_URL": "http://127.0.0.1:1", "spark.executorEnv.PYTHONPATH": path}
    accounts = {"here": "./lake", "amazon": amazon, "google": google}
    with Cluster(tmp_path) as cluster:
        file = pipeline_file(tmp_path, accounts, master=cluster.url, conf=BOTH_WORKERS | lacking)
        command = [sys.executable, "-m", "penstock", "check", str(file), "--json"]
        environment = {**os.environ, "AWS_ENDPOINT_URL": endpoint}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 1, done.stdout + done.stderr
    findings = json.loads(done.stdout).get("findings")
    assert findings, done.stdout + done.stderr
    seen = {one["subject"]: one for one in findings}
    assert len(seen) == len(findings)
    names = {"here": f"account {tmp_path}/lake", "amazon": f"account {amazon['url']}", "google": f"account {google['url']}"}
    assert all(seen[name]["ok"] for name in names.values()), seen
    from_tasks = {name: seen[f"{subject}, from the executors"] for name, subject in names.items()}
    assert {name: one["ok"] for name, one in from_tasks.items()} == {"here": True, "amazon": False, "google": False}
    assert "(2 looked, on " in from_tasks["here"]["message"]
    assert "(2 of 2): Could not create" in from_tasks["amazon"]["message"]
    assert "127.0.0.1:1/" in from_tasks["amazon"]["message"]
    assert "needs the package google.api_core, which is not installed. Install it" in from_tasks["google"]["message"]
    assert "Traceback" not in done.stdout + done.stderr
    assert [path.name for path in tmp_path.iterdir() if "check" in path.name] == []


def test_accounts_that_executors_reach_are_fine(spark: SparkSession, tmp_path: Path) -> None:
    accounts = {"here": "./lake", "amazon": url_and_options("s3")}
    report = Pipeline.from_file(pipeline_file(tmp_path, accounts, master="local[2]", conf={})).check(spark)
    seen = [finding for finding in report.findings if finding.subject.endswith("from the executors")]
    assert [finding.ok for finding in seen] == [True, True]
    assert report.ok


def test_a_directory_of_the_same_name_elsewhere_is_not_taken_for_the_drivers(tmp_path: Path) -> None:
    """There the driver's scratch directory is missing: here it is gone once the driver waits no more."""
    account = directory_account(tmp_path / "lake")
    with account.area(pipeline="flights", sink="lake", account="only").task_check() as check:  # type: ignore[arg-type]
        assert check is not None
        assert [finding.ok for finding in check.findings()] == [True]
    (finding,) = check.findings()
    assert not finding.ok
    assert "is not the driver's directory" in finding.message
    assert list(tmp_path.iterdir()) == []
