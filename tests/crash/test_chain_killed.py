"""Two pipelines, one of which reads what the other delivers, both killed at random points: every row comes once.

The seed is printed; PENSTOCK_SEED replays it.
"""

import json
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tests.crash import shared_java
from tests.crash.commandline import penstock
from tests.seed import SEED
from tests.servers.fixtures import accounts_on

pytestmark = [pytest.mark.crash, pytest.mark.spark, pytest.mark.timeout(300)]

FIRST = """\
pipeline: first
home: ./state/first
sources:
  events: {format: json, path: ./incoming, schema: "id BIGINT, place STRING, day DATE", options: {maxFilesPerTrigger: 1}}
sinks:
  lake: {type: parquet, accounts: ACCOUNTS, route: {hash: [id]}, partition_by: [place]}
ledger: LEDGER
trigger: {available_now: true}
"""
SECOND = """\
pipeline: second
home: ./state/second
sources:
  lake: {format: penstock, path: ./first.yaml, options: {maxBatchesPerTrigger: 2}}
sinks:
  copy: {type: parquet, accounts: {all: ./copy}}
trigger: {available_now: true}
"""
POINTS = {
    "first": ("stage.report", "rename.move", "ledger.sqlite_commit", "parquet.marker.write", "parquet.marker.sync"),
    "second": ("stage.start", "stage.report", "ledger.sqlite_insert", "ledger.sqlite_commit", "parquet.marker.place"),
}
IN_STORES = {
    "first": ("ledger.append", "inline.put", "object.mark.write", "object.publish.complete", "stage.report"),
    "second": POINTS["second"],
}
ROWS = 50


class Chain:
    """Files for the first pipeline, whose rows are to be in the second one's account."""

    def __init__(self, root: Path, *, accounts: object, ledger: str) -> None:
        self.root = root
        (root / "incoming").mkdir()
        (root / "first.yaml").write_text(FIRST.replace("ACCOUNTS", json.dumps(accounts)).replace("LEDGER", ledger))
        (root / "second.yaml").write_text(SECOND)
        self.files = 0

    def push(self, files: int) -> None:
        for _ in range(files):
            lines = [
                json.dumps({"id": self.files * ROWS + row, "place": f"p {row % 3}", "day": "2026-01-02"}) for row in range(ROWS)
            ]
            (self.root / "incoming" / f"{self.files}.json").write_text("\n".join(lines))
            self.files += 1

    def kill(self, name: str, fault: str) -> None:
        ended = shared_java.run(
            ["-m", "penstock", "run", f"{name}.yaml", "--json"],
            directory=self.root,
            more={"PENSTOCK_FAULTS": fault},
            forked=True,
        )
        assert ended.returncode in {-9, 0, 1, 75}, (fault, ended.returncode, ended.stdout, ended.stderr)

    def finish(self, name: str) -> None:
        done = penstock("run", f"{name}.yaml", "--json", directory=self.root)
        assert done.code == 0, str(done)

    def assert_exact(self) -> None:
        found = Counter(
            row["id"] for path in (self.root / "copy").rglob("*.parquet") for row in pq.ParquetFile(path).read().to_pylist()
        )
        assert found == Counter(range(self.files * ROWS))
        for name in ("first", "second"):
            assert penstock("verify", f"{name}.yaml", directory=self.root).code == 0


def kill_both(chain: Chain, points: Mapping[str, Sequence[str]], *, rounds: int) -> None:
    print(f"seed {SEED}")
    chosen = random.Random(f"{SEED} chain")
    chain.push(2)
    chain.finish("first")
    for _ in range(rounds):
        chain.push(chosen.randint(1, 2))
        for name in ("first", "second"):
            chain.kill(name, f"{chosen.choice(points[name])}=kill@{chosen.randint(1, 3)}")
    for name in ("first", "second"):
        chain.finish(name)
    chain.assert_exact()


def test_killed_on_directories(spark: SparkSession, tmp_path: Path) -> None:
    kill_both(Chain(tmp_path, accounts={"a": "./lake/a", "b": "./lake/b"}, ledger="sqlite:///ledger.db"), POINTS, rounds=2)


def test_killed_on_s3(spark: SparkSession, tmp_path: Path) -> None:
    places = {name: place.settings for name, (place, _) in accounts_on(east="s3", west="s3", ledger="s3").items()}
    accounts = {name: places[name] for name in ("east", "west")}
    kill_both(Chain(tmp_path, accounts=accounts, ledger=json.dumps(places["ledger"])), IN_STORES, rounds=1)


def test_what_was_planned_and_then_taken_back_is_refused_until_the_second_pipeline_is_rewound(
    spark: SparkSession, tmp_path: Path
) -> None:
    chain = Chain(tmp_path, accounts={"a": "./lake/a", "b": "./lake/b"}, ledger="sqlite:///ledger.db")
    chain.push(4)
    chain.finish("first")
    ended = penstock("run", "second.yaml", "--json", faults="ledger.sqlite_insert=error@3", directory=tmp_path)
    assert ended.code != 0, str(ended)  # its batch 0 is delivered, and batch 1 is planned only: batches 2 and 3 of the first one
    assert penstock("rewind", "first.yaml", "--to-batch", "2", "--yes", directory=tmp_path).code == 0
    refused = penstock("run", "second.yaml", "--json", directory=tmp_path)
    assert refused.code == 3, str(refused)
    assert "source 'lake' has read batch 3 (50 rows), which it took back" in refused.err
    chain.finish("first")
    back = penstock("rewind", "second.yaml", "--to-batch", "0", "--yes", directory=tmp_path)
    assert back.code == 0, str(back)
    chain.finish("second")
    chain.assert_exact()
