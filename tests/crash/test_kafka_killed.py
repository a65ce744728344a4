"""From files and from a topic into Kafka: every fault point of the sink, SIGKILL of driver and broker, while a reader watches.

Its rows are records, which other sinks of the scratch pipelines do not take. CI runs a slice; `make soak` runs all fault points
and kills each of them PENSTOCK_SOAK_KILLS times. The seed is printed; PENSTOCK_SEED replays it.
"""

import csv
import os
import random
import signal
import subprocess
from collections import Counter
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from tests.crash import shared_java
from tests.crash.awaited import ended
from tests.crash.commandline import penstock
from tests.crash.kafka_watch import Watch
from tests.crash.killing import await_session_end, kill_at_random, let_pass
from tests.seed import SEED
from tests.servers.kafka import is_open
from tests.spark.test_kafka_copy_page import Copy
from tests.spark.test_kafka_sink_page import Place
from tests.spark.test_readme import feed

KILLS = int(os.environ.get("PENSTOCK_SOAK_KILLS", "1"))
POINTS = tuple(f"kafka.{step}" for step in ("prepare", "init", "read", "rows", "mark", "commit"))
CASES = [f"{point}={kind}" for point in POINTS for kind in ("kill", "error", "lost", "stall:0.3")]
CHOSEN = CASES if os.environ.get("PENSTOCK_SOAK_FAULTS") == "all" else random.Random(SEED).sample(CASES, 2)
TOLD = {0, 1, 75}

pytestmark = [
    pytest.mark.crash,
    pytest.mark.spark,
    pytest.mark.campaign,
    pytest.mark.timeout(3600),
    pytest.mark.usefixtures("spark"),
]


@pytest.mark.parametrize("fault", CHOSEN)
def test_one_fault_loses_nothing_and_doubles_nothing(tmp_path: Path, fault: str) -> None:
    print(f"PENSTOCK_SEED={SEED} {fault}")
    place = Place(tmp_path, partitions=2, topic="lanes: 2")
    sent = feed(tmp_path / "incoming")
    with Watch(place.running.bootstrap, place.topic, distinct=True) as watch:
        if fault.endswith("kill"):
            place.environment.update(shared_java.environment())
            assert place.run("penstock run kafka.yaml", faults=fault).returncode == -signal.SIGKILL
            shared_java.end_application()
        else:
            penstock("run", "kafka.yaml", faults=fault, directory=tmp_path, environment=place.environment)
        done = place.run("penstock run kafka.yaml")
        assert done.returncode == 0, done.stdout + done.stderr
    assert watch.violations == []
    _assert_exact(place, sent)


@pytest.mark.parametrize("victim", ["driver", "broker"])
def test_kills_lose_nothing_and_double_nothing(tmp_path: Path, victim: str) -> None:
    place = Place(tmp_path, partitions=2, topic="lanes: 2")
    file = tmp_path / "kafka.yaml"
    file.write_text(file.read_text().replace("{header: true}", "{header: true, maxFilesPerTrigger: 1}"))
    sent, numbers = feed(tmp_path / "incoming"), count()
    with Watch(place.running.bootstrap, place.topic, distinct=True) as watch:
        _kill_often(place, victim, more=lambda: sent.update(_feed_more(tmp_path / "incoming", next(numbers))))
    assert watch.violations == []
    _assert_exact(place, sent)


@pytest.mark.parametrize("lanes", [1, 2])
@pytest.mark.parametrize("victim", ["driver", "broker"])
def test_kills_from_topic_to_topic_keep_every_record_once_and_each_key_in_order(tmp_path: Path, victim: str, lanes: int) -> None:
    """What readers see at any moment are the first records of each key."""
    copy = Copy(
        tmp_path, **{"maxOffsetsPerTrigger: 100000": "maxOffsetsPerTrigger: 40", "{type: kafka": f"{{type: kafka, lanes: {lanes}"}
    )
    generator = random.Random(f"{SEED} {lanes}")
    with Watch(copy.running.bootstrap, copy.topic, distinct=True) as watch:
        _kill_often(copy, victim, more=lambda: copy.feed(generator.randrange(30, 60)))
    assert watch.violations == []
    copy.assert_exact()


def _kill_often(place: Place, victim: str, *, more: Callable[[], object]) -> None:
    """Until it was killed KILLS times, then once more to the end; before each run there is `more`."""
    generator, ends = random.Random(f"{SEED} {victim}"), Counter[int]()
    while ends.total() < KILLS:
        more()
        place.environment.update({} if victim == "driver" else shared_java.environment())
        process = place.start()
        hit = kill_at_random(process, generator) is not None if victim == "driver" else _kill_broker(place, process, generator)
        out, err = ended(process)
        assert process.returncode in ({*TOLD, -signal.SIGKILL} if hit else {0}), out + err
        await_session_end(process.pid)
        ends[process.returncode] += hit
    done = place.run(f"penstock run {place.file}")
    assert done.returncode == 0, done.stdout + done.stderr
    print(f"PENSTOCK_SEED={SEED}: {victim} was killed {KILLS} times, the runs ended with {ends}")


def _feed_more(incoming: Path, number: int) -> "Counter[tuple[object, ...]]":
    rows = [(10_000 + number * 100 + at, "EWR", 1, 0.5) for at in range(100)]
    with (incoming / f"more-{number:04d}.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("id", "origin", "month", "delay"), *rows])
    return Counter[tuple[object, ...]](rows)


def _kill_broker(place: Place, process: "subprocess.Popen[str]", generator: random.Random) -> bool:
    """SIGKILL while the run delivers; it is back at once. False: too late."""
    assert process.stdout is not None
    process.stdout.readline()
    let_pass(process, generator.uniform(0, 1))
    if process.poll() is not None:
        return False
    place.running.kill()
    place.running.start()
    return True


def _assert_exact(place: Place, sent: "Counter[tuple[object, ...]]") -> None:
    assert place.rows() == sent
    assert not any(is_open(place.running.bootstrap, place.topic, partition) for partition in (0, 1))
    verified = place.run("penstock verify kafka.yaml")
    assert verified.returncode == 0, verified.stdout + verified.stderr
