"""A Kafka broker of one node (KRaft) in a directory of its own, and the jars that let Spark read from it."""

import os
import secrets
import shutil
import signal
import struct
import subprocess
import tempfile
import time
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

from tests.servers.maven import ALONE, fetch
from tests.servers.server import HOME, NotInstalledError, free_port, started, stop

VERSION = "4.3.1"
FOLDER = HOME / "kafka"
READY = FOLDER / f"{VERSION}.ready"
MAIN, FORMAT = "kafka.Kafka", "kafka.tools.StorageTool"
_ARCHIVE = FOLDER / f"{VERSION}.jsa"
_BROKER = (
    *((f"org.apache.kafka:{name}:{VERSION}", ()) for name in ("kafka_2.13", "kafka-tools")),
    ("org.apache.logging.log4j:log4j-slf4j-impl:2.25.4", ()),
)
_CONNECTOR = (
    *(
        (f"org.apache.spark:spark-{name}-0-10_2.13:{version}", ALONE)
        for name, version in (("sql-kafka", "4.2.0"), ("token-provider-kafka", "4.0.0"))
    ),
    ("org.apache.kafka:kafka-clients:3.9.2", ALONE),
    ("org.apache.commons:commons-pool2:2.13.1", ALONE),
)
"""Spark's own connector. That of Spark 4.3.0 is in no repository yet; this one runs on it."""
SETTINGS = """process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},PROXIED://127.0.0.1:{behind},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port},PROXIED://127.0.0.1:{proxied}
inter.broker.listener.name=PLAINTEXT
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,PROXIED:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={directory}/data
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=false
broker.session.timeout.ms=3000
broker.heartbeat.interval.ms=300
log.retention.check.interval.ms=1000
log.initial.task.delay.ms=500
transaction.abort.timed.out.transaction.cleanup.interval.ms=1000
metadata.max.idle.interval.ms=0
"""
"""The session time-out lets it register again soon after a kill; retention is looked at often, since tests wait for it.

The last one saves a third of what an idle broker computes: a record twice a second for followers, of which there are none.
"""
LOGGING = """status = warn
appender.file.type = File
appender.file.name = file
appender.file.fileName = {directory}/broker.log
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %-5p %d{{HH:mm:ss.SSS}} %c{{1}} %m%n
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
"""
_JVM = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


def install() -> None:
    """Fetch the broker's jars and those for Spark, unless they are there."""
    if not READY.exists():
        fetch(FOLDER / "broker", _BROKER)
        fetch(FOLDER / "connector", _CONNECTOR)
        _archive()
        READY.touch()


def _archive() -> None:
    """Keep its classes as it loads them, by a run: each of the many starts in the tests takes half as long for it."""
    with tempfile.TemporaryDirectory(prefix="penstock-kafka-") as directory:
        server = KafkaServer(str(shutil.which("java")), Path(directory), shared=f"-XX:ArchiveClassesAtExit={_ARCHIVE}")
        try:
            server.create()
        finally:
            server.stop()


def connector() -> list[Path]:
    """The jars of Spark's connector, for `spark.jars`."""
    return sorted((FOLDER / "connector").glob("*.jar"))


class KafkaServer:
    """One broker, which can be killed and started again.

    Whoever asks it at `proxied` is sent to that port for everything: a test puts a proxy there, which hands on to `behind`.
    """

    kind = "kafka"

    def __init__(self, java: str, directory: Path, *, shared: str = f"-XX:SharedArchiveFile={_ARCHIVE}") -> None:
        self._java, self._directory, self._shared = java, directory, shared
        self.port, self.behind, self.proxied, self._controller = free_port(), free_port(), free_port(), free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._admin: Any = None

    @property
    def bootstrap(self) -> str:
        """As `bootstrap.servers` takes it."""
        return f"127.0.0.1:{self.port}"

    @property
    def bootstrap_proxied(self) -> str:
        return f"127.0.0.1:{self.proxied}"

    def create(self, **settings: str) -> None:
        """Write its settings, with `settings` (dots as underscores) beside them, and start it."""
        self.format(**settings)
        self.start()

    def format(self, identity: str | None = None, **settings: str) -> str:
        """What `create` does before it starts; of a cluster's identity, or of a new one, which is returned."""
        text = self._text() + "".join(f"{name.replace('_', '.')}={value}\n" for name, value in settings.items())
        (self._directory / "server.properties").write_text(text)
        (self._directory / "log4j2.properties").write_text(LOGGING.format(directory=self._directory))
        identity = identity or "p" + urlsafe_b64encode(secrets.token_bytes(16)).decode()[1:22]
        format_it = [
            *self._command(FORMAT, shared="-Xshare:auto"),
            "format",
            "--ignore-formatted",
            "-t",
            identity,
            "-c",
            self._settings,
        ]
        subprocess.run(format_it, check=True, capture_output=True, cwd=self._directory)
        return identity

    def start(self) -> None:
        """Also after a kill: it reads its logs again. Returns when it answers."""
        self._process = started([*self._command(MAIN), self._settings], port=self.port, log=self._directory / "output.log")
        self.admin().list_topics(timeout=60)

    def _text(self) -> str:
        ports = {"port": self.port, "behind": self.behind, "proxied": self.proxied, "controller": self._controller}
        return SETTINGS.format(directory=self._directory, **ports)

    def start_again(self) -> None:
        """If it was killed."""
        if self._process is not None and self._process.poll() is not None:
            self.start()

    def kill(self) -> None:
        """SIGKILL; what it acknowledged is in the page cache, and there when it starts again."""
        if self._process is not None:
            stop(self._process, by=signal.SIGKILL)

    def stop(self) -> None:
        """As it should be."""
        if self._process is not None:
            stop(self._process)

    def freeze(self) -> None:
        """It answers nobody until `thaw`."""
        self._send(signal.SIGSTOP)

    def thaw(self) -> None:
        self._send(signal.SIGCONT)

    def admin(self) -> Any:
        """The client library's, for what only tests do; kept, since its answers die with it."""
        from confluent_kafka.admin import AdminClient

        if self._admin is None:
            self._admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        return self._admin

    def topic(self, name: str, partitions: int = 1, **settings: str) -> str:
        """A new and empty topic; `settings` with dots as underscores."""
        from confluent_kafka.admin import NewTopic

        named = {key.replace("_", "."): value for key, value in settings.items()}
        self.admin().create_topics([NewTopic(name, partitions, 1, config=named)])[name].result(60)
        self.await_led(name, partitions)
        return name

    def await_led(self, name: str, partitions: int) -> None:
        """Until requests about the topic are answered: a little after it was made, or the broker started, they are not."""
        while not self._leads(name, partitions):
            time.sleep(0.02)

    def _leads(self, name: str, partitions: int) -> bool:
        from confluent_kafka import KafkaException

        try:
            ends_of_each(self.bootstrap, name, range(partitions))
        except KafkaException:
            return False
        return True

    def set_topic(self, name: str, **settings: str) -> None:
        """Other settings for a topic that is there."""
        from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

        kind = AlterConfigOpType.SET
        entries = [ConfigEntry(key.replace("_", "."), value, incremental_operation=kind) for key, value in settings.items()]
        resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)
        [future] = self.admin().incremental_alter_configs([resource]).values()
        future.result(60)

    def remove(self, name: str) -> None:
        """That topic and all in it."""
        self.admin().delete_topics([name])[name].result(60)

    def tool(self, name: str, *arguments: str) -> str:
        """What one of Kafka's own command-line tools prints, e.g. `TransactionsCommand`, `list`."""
        command = [
            *self._command(f"org.apache.kafka.tools.{name}", shared="-Xshare:auto"),
            "--bootstrap-server",
            self.bootstrap,
            *arguments,
        ]
        return subprocess.run(command, check=True, capture_output=True, text=True, cwd=self._directory).stdout

    @property
    def _settings(self) -> str:
        return str(self._directory / "server.properties")

    def _command(self, main: str, *, shared: str | None = None) -> list[str]:
        logging = f"-Dlog4j2.configurationFile={self._directory}/log4j2.properties"
        return [self._java, *_JVM, shared or self._shared, logging, "-cp", f"{FOLDER}/broker/*", main]

    def _send(self, what: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(what)


@contextmanager
def running(directory: Path, **settings: str) -> Iterator[KafkaServer]:
    """A broker that keeps its data below `directory`."""
    java = shutil.which("java", path=os.environ.get("PATH"))
    if java is None or not READY.exists():
        raise NotInstalledError("Kafka is not there: run `make servers`")
    server = KafkaServer(java, directory)
    try:
        server.create(**settings)
        yield server
    finally:
        server.kill()  # nobody needs its data any more


# --- what tests do with topics, by a client of their own


def records(bootstrap: str, topic: str, *, isolation: str = "read_committed") -> list[Any]:
    """Every record that such a reader sees now, partition by partition in its order.

    Up to a partition's end as the client first finds it: a part of what is committed right then may come behind that.
    """
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    settings = {"group.id": "look", "isolation.level": isolation, "enable.auto.commit": False, "enable.partition.eof": True}
    consumer = Consumer({"bootstrap.servers": bootstrap, "log_level": 0, "fetch.wait.max.ms": 10, **settings})
    try:
        partitions = sorted(_admin(bootstrap).list_topics(topic, 60).topics[topic].partitions)  # a new client takes 50 ms more
        _await_settled(bootstrap, topic, partitions)
        consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
        found: dict[int, list[Any]] = {partition: [] for partition in partitions}
        ahead = set(partitions)
        while ahead:
            for message in consumer.consume(1000, 0.02):
                error = message.error()
                if error is None and message.partition() in ahead:
                    found[message.partition()].append(message)
                elif error is not None and error.code() == KafkaError._PARTITION_EOF:  # of any other, the client asks again
                    ahead.discard(message.partition())
        return [message for partition in partitions for message in found[partition]]
    finally:
        consumer.close()


def send(bootstrap: str, topic: str, **record: Any) -> None:
    """One record, durably."""
    from confluent_kafka import Producer

    failed: list[Any] = []
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0, "acks": "all"})
    producer.produce(topic, on_delivery=lambda error, _: failed.append(error) if error else None, **record)
    assert producer.flush(60) == 0
    assert not failed, failed


def remove_first(bootstrap: str, topic: str) -> None:
    """The oldest record of a topic: only those at the beginning of a partition can be removed."""
    from confluent_kafka import TopicPartition

    oldest = min(records(bootstrap, topic), key=lambda message: (message.partition(), message.offset()))
    place = TopicPartition(topic, oldest.partition(), oldest.offset() + 1)
    [future] = _admin(bootstrap).delete_records([place]).values()
    future.result(60)


_END_TXN = 26


def ends_transaction(data: bytes) -> bool:
    """Whether a client's bytes, from the beginning of a request on, ask to end a transaction; for a proxy."""
    at = 0
    while at + 6 <= len(data):
        size, what = struct.unpack_from(">ih", data, at)
        if what == _END_TXN:
            return True
        at += 4 + max(0, size)
    return False


def is_open(bootstrap: str, topic: str, partition: int = 0) -> bool:
    """Whether a transaction holds up readers of that partition."""
    settled, written = ends_of(bootstrap, topic, partition)
    return settled < written


def await_settled(bootstrap: str, topic: str, partitions: int) -> None:
    """Until readers of committed records see the end of each partition: brokers answer to a commit before that."""
    while not _settled(bootstrap, topic, range(partitions)):
        time.sleep(0.01)


def _await_settled(bootstrap: str, topic: str, partitions: Sequence[int]) -> None:
    """Brokers answer to a commit before readers see it. What a driver left open that is gone is not waited for."""
    deadline = time.monotonic() + 2
    while not _settled(bootstrap, topic, partitions) and time.monotonic() < deadline:
        time.sleep(0.01)


def _settled(bootstrap: str, topic: str, partitions: Sequence[int]) -> bool:
    return all(settled == written for settled, written in ends_of_each(bootstrap, topic, partitions))


def ends_of(bootstrap: str, topic: str, partition: int) -> tuple[int, int]:
    """Where readers of what is committed stop, and where the last record is."""
    [ends] = ends_of_each(bootstrap, topic, [partition])
    return ends


def ends_of_each(bootstrap: str, topic: str, partitions: Sequence[int]) -> list[tuple[int, int]]:
    """The same of several partitions; asked again while a broker finds its place."""
    from confluent_kafka import KafkaError, KafkaException

    deadline = time.monotonic() + 30
    while True:
        try:
            return _ends_now(bootstrap, topic, partitions)
        except KafkaException as error:
            _admin.cache_clear()  # what it knows of partitions and their leaders may be old
            again = {KafkaError.UNKNOWN_LEADER_EPOCH, KafkaError.FENCED_LEADER_EPOCH, KafkaError._TIMED_OUT, KafkaError._NOENT}
            if error.args[0].code() not in again or time.monotonic() > deadline:
                raise
        time.sleep(0.1)


def _ends_now(bootstrap: str, topic: str, partitions: Sequence[int]) -> list[tuple[int, int]]:
    from confluent_kafka import IsolationLevel, TopicPartition
    from confluent_kafka.admin import OffsetSpec

    asked = {TopicPartition(topic, partition): OffsetSpec.latest() for partition in partitions}
    settled, written = (
        _admin(bootstrap).list_offsets(asked, isolation_level=level, request_timeout=10)
        for level in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED)
    )
    return [(settled[place].result(60).offset, written[place].result(60).offset) for place in asked]


@lru_cache(maxsize=4)
def _admin(bootstrap: str) -> Any:
    """Kept, since a new client takes longer than what it is asked; of the newest brokers, since many are started and stopped."""
    from confluent_kafka.admin import AdminClient

    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0, "reconnect.backoff.max.ms": 100})
