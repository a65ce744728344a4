"""A topic with records that cannot be decoded, and every fault on the way of a batch: both kinds are exactly where they belong.

CI runs a slice; `make soak` runs all of it, and kills PENSTOCK_SOAK_KILLS times. The seed is printed; PENSTOCK_SEED replays it.
"""

import os
import random
import signal
from collections import Counter
from pathlib import Path

import pyarrow.dataset
import pytest
from confluent_kafka import Producer

from penstock.registry.wire import framed
from tests.crash.awaited import ended
from tests.crash.kafka_world import PARTITIONS, expect, make_kafka_world, new_topic, rows_of
from tests.crash.killing import await_session_end, kill_at_random
from tests.crash.probe import Probe
from tests.crash.world import Row
from tests.seed import SEED
from tests.servers.fixtures import server
from tests.unit.registry_values import avro

KILLS = int(os.environ.get("PENSTOCK_SOAK_KILLS", "1"))
ROWS, BATCH = 200, 100
POINTS = (
    *("stage.start", "stage.report", "stage.collect", "ledger.sqlite_insert", "ledger.sqlite_commit"),
    *("parquet.publish.directory", "parquet.publish.sync", "rename.move", "parquet.marker.place", "parquet.marker.write"),
)
CASES = [f"{point}={kind}@{at}" for point in POINTS for kind in ("kill", "error", "lost") for at in (1, 2, 5)]
CHOSEN = CASES if os.environ.get("PENSTOCK_SOAK_FAULTS") == "all" else random.Random(SEED).sample(CASES, 3)
TOLD = {0, 1, 75, -signal.SIGKILL}
SCHEMA = {
    "type": "record",
    "name": "Flight",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "origin", "type": "string"},
        {"name": "month", "type": "int"},
        {"name": "payload", "type": "string"},
        {"name": "amount", "type": "double"},
    ],
}
NAMES = tuple(str(field["name"]) for field in SCHEMA["fields"])  # type: ignore[index]

pytestmark = [
    pytest.mark.crash,
    pytest.mark.spark,
    pytest.mark.campaign,
    pytest.mark.timeout(3600),
    pytest.mark.usefixtures("spark"),
]

Bad = Counter[tuple[int, int, bytes]]


class Town:
    """A world that reads flights by a registry, and what must be in its quarantine."""

    def __init__(self, root: Path, generator: random.Random) -> None:
        self.topic, self.bad, self._generator = new_topic(), Bad(), generator
        self._schema_id = int(server("registry").register(f"{self.topic}-value", SCHEMA))
        decode = f"decode: {{value: avro, undecodable: quarantine, registry: {{url: '{server('registry').url}'}}}}"
        self.world = make_kafka_world(root, self.topic, seed=SEED, per_trigger=BATCH, more=decode)
        text = self.world.file.read_text()
        transform = next(line for line in text.splitlines() if line.startswith("transform:"))
        self.world.rewrite((transform, f"transform: {{sql: '{QUERY}'}}"), ("trigger:", "quarantine: ./quarantine\ntrigger:"))
        self._sent = [0] * PARTITIONS

    def feed(self) -> None:
        """Rows that must be delivered, and in between as many records that cannot be decoded as one in ten."""
        rows = rows_of(self.world, self._generator, first=sum(self._sent), count=ROWS)
        expect(self.world, rows)
        producer = Producer({"bootstrap.servers": server("kafka").bootstrap, "log_level": 0})
        for number, row in enumerate(rows):
            if self._generator.random() < 0.1:
                self._send(producer, self._generator.randrange(PARTITIONS), self._broken(number), good=False)
            self._send(producer, number % PARTITIONS, self._written(row), good=True)
        assert producer.flush(60) == 0

    def assert_exact(self) -> None:
        """Both kinds as multisets, and what the ledger says of them."""
        self.world.assert_exact()
        files = [str(path) for path in (self.world.root / "quarantine").rglob("*.parquet")]
        rows = pyarrow.dataset.dataset(files, format="parquet").to_table().to_pylist() if files else []
        held = Bad((row["partition"], row["offset"], row["value"]) for row in rows)
        assert held == self.bad, f"lost {self.bad - held}, too many {held - self.bad}"
        self.world.assert_verified()

    def _send(self, producer: Producer, partition: int, value: bytes, *, good: bool) -> None:
        producer.produce(self.topic, value, partition=partition)
        if not good:
            self.bad[partition, self._sent[partition], value] += 1
        self._sent[partition] += 1

    def _written(self, row: Row) -> bytes:
        return avro(SCHEMA, dict(zip(NAMES, row, strict=True)), self._schema_id)

    def _broken(self, number: int) -> bytes:
        kinds = (b"plain %d" % number, framed(700_000, b"%d" % number), framed(self._schema_id, b"%d" % number), b"")
        return self._generator.choice(kinds)


QUERY = "SELECT CAST(value.id AS INT) AS id, value.origin, value.month, value.payload, value.amount FROM flights"


@pytest.mark.parametrize("fault", CHOSEN)
def test_one_fault_loses_nothing_and_doubles_nothing(tmp_path: Path, fault: str) -> None:
    print(f"PENSTOCK_SEED={SEED} {fault}")
    town, once = Town(tmp_path / "world", random.Random(f"{SEED} {fault}")), tmp_path / "once"
    once.mkdir()
    town.feed()
    with Probe(town.world) as probe:
        first = town.world.run_with(fault, once=once)
        assert first.code in TOLD, str(first)
        reached = list(once.iterdir())
        town.feed()
        town.world.run_to_the_end()
    print(f"the first run ended with {first.code}, the fault was {'reached' if reached else 'not reached'}")
    assert probe.violations == []
    town.assert_exact()


def test_kills_lose_nothing_and_double_nothing(tmp_path: Path) -> None:
    generator, killed = random.Random(SEED), 0
    town = Town(tmp_path, generator)
    town.feed()
    with Probe(town.world) as probe:
        while killed < KILLS:
            process = town.world.start("run", str(town.world.file), "--available-now", "--json")
            hit = kill_at_random(process, generator) is not None
            out, err = ended(process)
            assert process.returncode in (TOLD if hit else {0}), out + err
            await_session_end(process.pid)
            killed += hit
            town.feed()
        town.world.run_to_the_end()
    print(f"PENSTOCK_SEED={SEED}: {killed} runs were killed")
    assert probe.violations == []
    town.assert_exact()
