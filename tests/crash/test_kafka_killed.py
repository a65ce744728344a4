"""A pipeline from files into Kafka: every fault point of the sink, and SIGKILL of driver and broker, while a reader watches.

Its rows are records, which other sinks of the scratch pipelines do not take. CI runs a slice; `make soak` runs all fault points
and kills each of them PENSTOCK_SOAK_KILLS times. The seed is printed; PENSTOCK_SEED replays it.
"""

import csv
import os
import random
import signal
import subprocess
import threading
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import KafkaException

from tests.crash.killing import await_session_end, kill_at_random, let_pass
from tests.seed import SEED
from tests.servers.kafka import is_open, records
from tests.spark.test_kafka_sink_page import Place
from tests.spark.test_readme import feed

KILLS = int(os.environ.get("PENSTOCK_SOAK_KILLS", "1"))
POINTS = tuple(f"kafka.{step}" for step in ("prepare", "init", "read", "rows", "mark", "commit"))
CASES = [f"{point}={kind}" for point in POINTS for kind in ("kill", "error", "lost", "stall:0.3")]
CHOSEN = CASES if os.environ.get("PENSTOCK_SOAK_FAULTS") == "all" else random.Random(SEED).sample(CASES, 2)
TOLD = {0, 1, 75}

pytestmark = [pytest.mark.crash, pytest.mark.spark, pytest.mark.campaign, pytest.mark.timeout(3600)]


class Watch:
    """Reads what is committed all the time: what was seen stays, and of each partition comes more."""

    def __init__(self, place: Place) -> None:
        self._place, self._over = place, threading.Event()
        self.violations: list[str] = []
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> "Watch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        seen = Counter[tuple[int, int, bytes]]()
        while not self._over.wait(0.2):
            try:
                messages = records(self._place.running.bootstrap, self._place.topic)
            except KafkaException:  # the broker is down
                continue
            found = Counter((message.partition(), message.offset(), message.value()) for message in messages)
            if not seen <= found:
                self.violations.append(f"{(seen - found).total()} records vanished")
            doubled = [value for value, times in Counter(value for _, _, value in found).items() if times > 1]
            if doubled:
                self.violations.append(f"{len(doubled)} records are there twice")
            seen = found


@pytest.mark.parametrize("fault", CHOSEN)
def test_one_fault_loses_nothing_and_doubles_nothing(tmp_path: Path, fault: str) -> None:
    print(f"PENSTOCK_SEED={SEED} {fault}")
    place = Place(tmp_path, partitions=2, topic="lanes: 2")
    sent = feed(tmp_path / "incoming")
    with Watch(place) as watch:
        place.run("penstock run kafka.yaml", faults=fault)
        done = place.run("penstock run kafka.yaml")
        assert done.returncode == 0, done.stdout + done.stderr
    assert watch.violations == []
    _assert_exact(place, sent)


@pytest.mark.parametrize("victim", ["driver", "broker"])
def test_kills_lose_nothing_and_double_nothing(tmp_path: Path, victim: str) -> None:
    generator = random.Random(f"{SEED} {victim}")
    place = Place(tmp_path, partitions=2, topic="lanes: 2")
    file = tmp_path / "kafka.yaml"
    file.write_text(file.read_text().replace("{header: true}", "{header: true, maxFilesPerTrigger: 1}"))
    sent, killed = feed(tmp_path / "incoming"), 0
    with Watch(place) as watch:
        while killed < KILLS:
            sent += _feed_more(tmp_path / "incoming", killed)
            process = place.start()
            hit = (
                kill_at_random(process, generator) is not None if victim == "driver" else _kill_broker(place, process, generator)
            )
            out, err = process.communicate(timeout=300)
            assert process.returncode in ({*TOLD, -signal.SIGKILL} if hit else {0}), out + err
            await_session_end(process.pid)
            killed += 1
        done = place.run("penstock run kafka.yaml")
        assert done.returncode == 0, done.stdout + done.stderr
    print(f"PENSTOCK_SEED={SEED}: {victim} was killed {killed} times")
    assert watch.violations == []
    _assert_exact(place, sent)


def _feed_more(incoming: Path, number: int) -> "Counter[tuple[object, ...]]":
    rows = [(10_000 + number * 100 + at, "EWR", 1, 0.5) for at in range(100)]
    with (incoming / f"more-{number:04d}.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("id", "origin", "month", "delay"), *rows])
    return Counter[tuple[object, ...]](rows)


def _kill_broker(place: Place, process: "subprocess.Popen[str]", generator: random.Random) -> bool:
    """SIGKILL while the run delivers; it is back at once."""
    assert process.stdout is not None
    process.stdout.readline()
    let_pass(process, generator.uniform(0, 1))
    place.running.kill()
    place.running.start()
    return True


def _assert_exact(place: Place, sent: "Counter[tuple[object, ...]]") -> None:
    assert place.rows() == sent
    assert not any(is_open(place.running.bootstrap, place.topic, partition) for partition in (0, 1))
    verified = place.run("penstock verify kafka.yaml")
    assert verified.returncode == 0, verified.stdout + verified.stderr
