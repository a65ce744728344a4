"""Kinesalite, an emulator of Kinesis, in memory, with a clock that tests set forward: so records expire without a day of waiting.

Where it is not as AWS documents it:
- `MillisBehindLatest` is 0 for an open shard, also where more records wait than it answered with.
- Records that have expired are left out of an answer, but count for its `Limit`: an answer can be empty while others wait.
- `GetShardIterator` with AT_TIMESTAMP after the newest record is never answered.
- It throttles nobody: neither five reads a second nor 2 MB/s of a shard.
- `StreamCreationTimestamp` has whole seconds; `ListShards` takes no creation time, and lists closed shards for ever.
- An iterator of a stream that was deleted reads the new one of its name. What AWS does then is not documented.
- The last page of a closed shard names no `ChildShards`; it ends only after a page without records.
The in-memory stream of the unit tests behaves as documented in all of these.
"""

import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.servers.server import HOME, NotInstalledError, free_port, started, stop

PACKAGE = "kinesalite@3.3.3"
FOLDER = HOME / "kinesis"
MAIN = FOLDER / "node_modules/kinesalite/cli.js"
_STATE_MS = ("--createStreamMs", "10", "--deleteStreamMs", "10", "--updateStreamMs", "10", "--shardLimit", "1000")
_CLOCK = """\
const fs = require('fs'), http = require('http'), real = Date.now, file = process.env.CLOCK_FILE;
let ahead = 0;
Date.now = () => real() + ahead;
const emit = http.Server.prototype.emit;
http.Server.prototype.emit = function (event, request, response) {
  if (event === 'request') {
    ahead = Number(fs.readFileSync(file, 'utf8')) || 0;
    response.setHeader('Date', new Date(Date.now()).toUTCString());
  }
  return emit.apply(this, arguments);
};
"""
"""Loaded before the emulator: the clock that it stamps records with, and says in its answers, is ahead by what the file holds."""


def install() -> None:
    """Fetch it, unless it is there. Its optional store on disk is left out: that one is compiled."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        raise NotInstalledError("Kinesalite runs on Node.js, and node or npm is not on PATH")
    if not MAIN.exists():
        FOLDER.mkdir(parents=True, exist_ok=True)
        quiet = ["--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error", "--omit=optional"]
        subprocess.run([npm, "install", "--prefix", str(FOLDER), *quiet, PACKAGE], check=True)


@dataclass(frozen=True)
class KinesisServer:
    """One running emulator. `clock`: the file that says by how many milliseconds its clock is ahead."""

    port: int
    clock: Path
    names: Iterator[int] = field(default_factory=lambda: iter(range(1_000_000)))

    @property
    def options(self) -> dict[str, str]:
        """As the options of a source have it."""
        endpoint = f"http://127.0.0.1:{self.port}"
        return {"endpoint": endpoint, "region": "eu-west-1", "access_key_id": "tester", "secret_access_key": "nothing-secret"}

    def stream(self, *, shards: int = 1) -> "Stream":
        """A new stream."""
        found = Stream(self, f"orders-{next(self.names)}")
        found.create(shards=shards)
        return found

    def set_clock(self, *, ahead_h: float) -> None:
        self.clock.write_text(str(round(ahead_h * 3_600_000)))

    def client(self) -> Any:
        import boto3

        given = self.options
        return boto3.client(
            "kinesis",
            endpoint_url=given["endpoint"],
            region_name=given["region"],
            aws_access_key_id=given["access_key_id"],
            aws_secret_access_key=given["secret_access_key"],
        )


class Stream:
    """One stream, written to from outside."""

    def __init__(self, server: KinesisServer, name: str) -> None:
        self.server, self.name = server, name
        self._client = server.client()

    @property
    def options(self) -> dict[str, str]:
        return {"streamName": self.name, **self.server.options}

    def create(self, *, shards: int = 1) -> None:
        self._client.create_stream(StreamName=self.name, ShardCount=shards)
        self.await_active()

    def delete(self) -> None:
        self._client.delete_stream(StreamName=self.name)
        while True:
            try:
                self._client.describe_stream_summary(StreamName=self.name)
            except self._client.exceptions.ResourceNotFoundException:
                return
            time.sleep(0.02)

    def put(self, *values: object, key: str | None = None) -> None:
        """Put records, by default with their own value as key."""
        for start in range(0, len(values), 500):
            records = [{"Data": str(each).encode(), "PartitionKey": key or str(each)} for each in values[start : start + 500]]
            assert self._client.put_records(StreamName=self.name, Records=records)["FailedRecordCount"] == 0

    def put_data(self, data: bytes, *, key: str = "k") -> None:
        self._client.put_record(StreamName=self.name, Data=data, PartitionKey=key)

    def open_shards(self) -> list[dict[str, Any]]:
        listed = self._client.list_shards(StreamName=self.name)["Shards"]
        return [each for each in listed if "EndingSequenceNumber" not in each["SequenceNumberRange"]]

    def split(self, number: int = 0) -> None:
        """Split an open shard in the middle of its hash keys."""
        shard = self.open_shards()[number]
        first, last = (int(shard["HashKeyRange"][end]) for end in ("StartingHashKey", "EndingHashKey"))
        self._client.split_shard(
            StreamName=self.name, ShardToSplit=shard["ShardId"], NewStartingHashKey=str((first + last) // 2 + 1)
        )
        self.await_active()

    def merge(self, number: int = 0) -> None:
        """Merge an open shard with the one whose hash keys follow."""
        shards = sorted(self.open_shards(), key=lambda each: int(each["HashKeyRange"]["StartingHashKey"]))
        one, other = (each["ShardId"] for each in shards[number : number + 2])
        self._client.merge_shards(StreamName=self.name, ShardToMerge=one, AdjacentShardToMerge=other)
        self.await_active()

    def await_active(self) -> None:
        while self._client.describe_stream_summary(StreamName=self.name)["StreamDescriptionSummary"]["StreamStatus"] != "ACTIVE":
            time.sleep(0.02)


@contextmanager
def running(directory: Path) -> Iterator[KinesisServer]:
    """An emulator that keeps its streams in memory."""
    node = shutil.which("node")
    if node is None or not MAIN.exists():
        raise NotInstalledError("Kinesalite is not there: run `make servers`")
    port, clock, preload = free_port(), directory / "clock", directory / "clock.js"
    clock.write_text("0")
    preload.write_text(_CLOCK)
    command = [node, "--require", str(preload), str(MAIN), "--port", str(port), *_STATE_MS]
    process = started(command, port=port, log=directory / "kinesis.log", env={"CLOCK_FILE": str(clock)})
    try:
        yield KinesisServer(port, clock)
    finally:
        stop(process)
