"""Several brokers, of which one may be killed: three copies of every partition, two of which acknowledge."""

import shutil
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.servers.kafka import READY, KafkaServer
from tests.servers.server import START_S, NotInstalledError, free_port

COPIES, IN_SYNC = 3, 2
_LOOK_S = 0.1
_COPIED = {
    "offsets.topic.replication.factor": str(COPIES),
    "transaction.state.log.replication.factor": str(COPIES),
    "transaction.state.log.min.isr": str(IN_SYNC),
    "controller.quorum.election.timeout.ms": "500",
    "controller.quorum.fetch.timeout.ms": "1000",
    "metadata.max.idle.interval.ms": "500",  # as Kafka has it: here there are followers, which learn by it how far they are
}


class Cluster:
    """Brokers that are controllers, too; each as a server of its own."""

    def __init__(self, java: str, directory: Path) -> None:
        controllers = [free_port() for _ in range(COPIES)]
        voters = ",".join(f"{number}@127.0.0.1:{port}" for number, port in enumerate(controllers, 1))
        self.brokers: dict[int, KafkaServer] = {}
        for number, port in enumerate(controllers, 1):
            home = directory / f"broker-{number}"
            home.mkdir()
            self.brokers[number] = _Member(java, home, number=number, controller=port, voters=voters)

    @property
    def bootstrap(self) -> str:
        """All of them."""
        return ",".join(broker.bootstrap for broker in self.brokers.values())

    def create(self) -> None:
        """Start all of them: none answers before most do."""
        identity = None
        for broker in self.brokers.values():
            identity = broker.format(identity, **_COPIED)
        with ThreadPoolExecutor(COPIES) as together:
            list(together.map(KafkaServer.start, self.brokers.values()))

    def stop(self) -> None:
        for broker in self.brokers.values():
            broker.stop()

    def admin(self) -> Any:
        from confluent_kafka.admin import AdminClient

        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def topic(self, name: str, partitions: int, **settings: str) -> str:
        """A new one with three copies, two of which acknowledge; `settings` with dots as underscores."""
        from confluent_kafka.admin import NewTopic

        named = {"min.insync.replicas": str(IN_SYNC), **{key.replace("_", "."): value for key, value in settings.items()}}
        admin = self.admin()
        admin.create_topics([NewTopic(name, partitions, COPIES, config=named)])[name].result(60)
        first = next(iter(self.brokers.values()))
        first.await_led(name, partitions)
        return name

    def await_in_sync(self, *topics: str) -> None:
        """Until all copies are there again: else the next kill would leave one."""
        admin, deadline = self.admin(), time.monotonic() + START_S
        while not all(len(part.isrs) == COPIES for name in topics for part in _partitions(admin, name)):
            assert time.monotonic() < deadline, "the copies do not come together again"
            time.sleep(_LOOK_S)

    def leader_of(self, topic: str, partition: int) -> KafkaServer:
        """Who takes its records now."""
        admin = self.admin()
        return self.brokers[admin.list_topics(topic, 60).topics[topic].partitions[partition].leader]


def _partitions(admin: Any, topic: str) -> Iterable[Any]:
    return admin.list_topics(topic, 60).topics[topic].partitions.values()  # type: ignore[no-any-return]


class _Member(KafkaServer):
    def __init__(self, java: str, directory: Path, *, number: int, controller: int, voters: str) -> None:
        super().__init__(java, directory)
        self._controller, self._number, self._voters = controller, number, voters

    def _text(self) -> str:
        text = super()._text()
        return text.replace("node.id=1\n", f"node.id={self._number}\n").replace(
            f"controller.quorum.voters=1@127.0.0.1:{self._controller}\n", f"controller.quorum.voters={self._voters}\n"
        )


@contextmanager
def running(directory: Path) -> Iterator[Cluster]:
    """Three brokers that keep their data below `directory`."""
    java = shutil.which("java")
    if java is None or not READY.exists():
        raise NotInstalledError("Kafka is not there: run `make servers`")
    with ExitStack() as stack:
        cluster = Cluster(java, directory)
        stack.callback(cluster.stop)
        cluster.create()
        yield cluster
