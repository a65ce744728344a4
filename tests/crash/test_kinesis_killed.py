"""A stream of Kinesis whose shards are split and merged, into two sinks, and a driver that is killed: each record once.

CI runs a slice; `make soak` kills it PENSTOCK_SOAK_KILLS times. The seed is printed; PENSTOCK_SEED replays it.
"""

import os
import random
import signal
import sqlite3
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.crash import shared_java
from tests.crash.commandline import penstock
from tests.seed import SEED
from tests.servers.fixtures import server
from tests.servers.kinesis import Stream

KILLS = int(os.environ.get("PENSTOCK_SOAK_KILLS", "2"))
MOST_SHARDS = 5
PIPELINE = """\
pipeline: clicks
home: ./state
sources:
  clicks: {format: kinesis, options: OPTIONS}
transform:
  sql: SELECT shard_id, sequence_number, partition_key, CAST(data AS STRING) AS data FROM clicks
sinks:
  lake: {type: parquet, accounts: {a: ./a, b: ./b}, route: {hash: [data]}}
  table: {type: sqlite, url: "sqlite:///clicks.db", table: clicks}
trigger: {available_now: true}
"""
POINTS = (
    *("stage.start", "stage.report", "rename.move", "ledger.sqlite_insert", "ledger.sqlite_commit"),
    *("parquet.marker.place", "parquet.marker.write", "sqlite.commit"),
)

pytestmark = [
    pytest.mark.crash,
    pytest.mark.spark,
    pytest.mark.campaign,
    pytest.mark.timeout(3600),
    pytest.mark.usefixtures("spark"),
]


class World:
    """A stream and what was put into it."""

    def __init__(self, root: Path, chosen: random.Random) -> None:
        self.root, self.chosen = root, chosen
        server("kinesis").set_clock(ahead_h=0)
        self.stream: Stream = server("kinesis").stream(shards=2)
        options = {**self.stream.options, "startingPosition": "TRIM_HORIZON", "maxRecordsPerTrigger": 30}
        (root / "clicks.yaml").write_text(PIPELINE.replace("OPTIONS", str(options)))
        self.sent = 0

    def change(self) -> None:
        """Put records, and split or merge shards between them."""
        for _ in range(2):
            count = self.chosen.randint(10, 40)
            self.stream.put(*range(self.sent, self.sent + count))
            self.sent += count
            shards = len(self.stream.open_shards())
            act = self.chosen.choice(["split", "merge", "neither"])
            if act == "split" and shards < MOST_SHARDS:
                self.stream.split(self.chosen.randrange(shards))
            elif act == "merge" and shards > 1:
                self.stream.merge(self.chosen.randrange(shards - 1))

    def run(self, faults: str) -> int:
        words = ["-m", "penstock", "run", "clicks.yaml", "--json"]
        ended = shared_java.run(words, directory=self.root, more={"PENSTOCK_FAULTS": faults}, forked=True)
        assert ended.returncode in {-signal.SIGKILL, 0, 1, 75}, (faults, ended.returncode, ended.stdout, ended.stderr)
        return ended.returncode

    def assert_exact(self) -> None:
        expected = Counter(map(str, range(self.sent)))
        files = [path for account in ("a", "b") for path in (self.root / account).rglob("*.parquet")]
        assert Counter(data for path in files for data in pq.ParquetFile(path).read()["data"].to_pylist()) == expected
        with sqlite3.connect(self.root / "clicks.db") as connection:
            assert Counter(data for (data,) in connection.execute("SELECT data FROM clicks")) == expected
        assert penstock("verify", "clicks.yaml", directory=self.root).code == 0


def test_a_driver_killed_while_shards_are_split_and_merged_delivers_each_record_once(tmp_path: Path) -> None:
    chosen = random.Random(f"{SEED} kinesis")
    world = World(tmp_path, chosen)
    ends = Counter[int]()
    while ends[-signal.SIGKILL] < KILLS:
        world.change()
        ends[world.run(f"{chosen.choice(POINTS)}=kill@{chosen.randint(1, 3)}")] += 1
    done = penstock("run", "clicks.yaml", "--json", directory=tmp_path)
    assert done.code == 0, str(done)
    print(f"PENSTOCK_SEED={SEED}: {world.sent} records in {len(world.stream.open_shards())} shards, runs ended with {ends}")
    world.assert_exact()
