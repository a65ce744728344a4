"""Three brokers, and SIGKILL of one that leads: the run goes on, every record is there once and each key's in order.

CI kills one; `make soak` kills PENSTOCK_SOAK_KILLS of them. The seed is printed; PENSTOCK_SEED replays it.
"""

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash import shared_java
from tests.crash.awaited import ended
from tests.crash.kafka_watch import Watch
from tests.crash.killing import await_session_end, let_pass
from tests.seed import SEED
from tests.servers import kafka_cluster
from tests.servers.kafka_cluster import Cluster
from tests.spark.test_kafka_copy_page import Copy

KILLS = int(os.environ.get("PENSTOCK_SOAK_KILLS", "1"))

pytestmark = [
    pytest.mark.crash,
    pytest.mark.spark,
    pytest.mark.campaign,
    pytest.mark.timeout(3600),
    pytest.mark.usefixtures("spark"),
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with kafka_cluster.running(tmp_path_factory.mktemp("cluster")) as running:
        yield running


def test_the_leader_is_killed_and_the_run_goes_on(tmp_path: Path, cluster: Cluster) -> None:
    generator = random.Random(SEED)
    changes = {"maxOffsetsPerTrigger: 100000": "maxOffsetsPerTrigger: 40", "{type: kafka": "{type: kafka, lanes: 2"}
    copy = Copy(tmp_path, running=cluster, **changes)
    markers = f"penstock.{copy.topic}.out"
    copy.feed(60)
    assert copy.run("penstock run copy.yaml").returncode == 0
    killed = 0
    with Watch(cluster.bootstrap, copy.topic, distinct=True) as watch:
        while killed < KILLS:
            copy.feed(60)
            copy.environment.update(shared_java.environment())
            process = copy.start()
            assert process.stdout is not None
            process.stdout.readline()
            let_pass(process, generator.uniform(0, 1))
            if process.poll() is None:
                topic, partition = generator.choice([(copy.topic, generator.randrange(3)), (markers, generator.randrange(2))])
                victim = cluster.leader_of(topic, partition)
                victim.kill()
                killed += 1
            out, err = ended(process)
            for broker in cluster.brokers.values():
                broker.start_again()
            assert process.returncode == 0, out + err
            await_session_end(process.pid)
            cluster.await_in_sync(copy.topic, markers)
    print(f"PENSTOCK_SEED={SEED}: leaders were killed {killed} times")
    assert watch.violations == []
    copy.assert_exact()


def test_check_warns_of_what_one_broker_can_take_away(tmp_path: Path, cluster: Cluster) -> None:
    copy = Copy(tmp_path, running=cluster)
    copy.feed(3)
    for command in ("check", "run"):
        done = copy.run(f"penstock {command} copy.yaml")
        assert done.returncode == 0, done.stdout + done.stderr
        assert "min.insync.replicas" not in done.stdout + done.stderr
    markers = f"penstock.{copy.topic}.out"
    first = next(iter(cluster.brokers.values()))
    for topic in (copy.topic, markers):
        first.set_topic(topic, min_insync_replicas="1")
        checked = " ".join(copy.run("penstock check copy.yaml").stdout.split())
        assert f"topic {topic} has 3 copies and min.insync.replicas=1" in checked
