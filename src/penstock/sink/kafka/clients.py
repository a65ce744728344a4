"""Clients of one Kafka cluster, configured with the user's options and with what exactly-once delivery needs."""

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import AdminClient

from penstock.kafka.login_errors import ClientErrors, require_login
from penstock.sink.kafka.columnar_producer import ColumnarProducer
from penstock.sink.kafka.librdkafka import librdkafka
from penstock.sink.kafka.records import Record, records_of

if TYPE_CHECKING:
    import pyarrow as pa


_FULL_S: Final = 0.1
_SENT_S: Final = 1.0


class OneByOneProducer(Producer):  # type: ignore[misc]  # it has no types
    """The client's own producer, with the calls of `ColumnarProducer`."""

    def let_go(self) -> None:
        """Wait as `ColumnarProducer` does. The client ends with its last reference, and closing it would abort a transaction."""
        self.flush(_SENT_S)

    def send(self, rows: "pa.RecordBatch", *, topic: str) -> None:
        for record in records_of(rows, topic=topic):
            self.enqueue(record)

    def enqueue(self, record: Record, **more: Any) -> None:
        """Enqueue one record as soon as there is room for it. `more`: further arguments of the client's `produce`."""
        *placed, headers = record  # positional: keyword arguments take the client twice as long
        if headers is not None:
            more["headers"] = headers
        while True:
            try:
                self.produce(*placed, **more)
            except BufferError:
                self.poll(_FULL_S)
            else:
                return


_log = logging.getLogger("penstock.kafka")
_log.addHandler(logging.NullHandler())  # else the client's own retries appear on the terminal
_log.propagate = False

_ERRORS = 3
"""Syslog's level "error". A client that is being dropped has no logger any more, and would write the rest to the terminal."""
_PRODUCING = {
    "linger.ms": 20,
    "batch.size": 1_000_000,
    "batch.num.messages": 2_000,  # the client scans these again at each answer: so few fit a core's cache
    "queue.buffering.max.messages": 1_000_000,
    "queue.buffering.max.kbytes": 262_144,
    "partitioner": "murmur2_random",
}
"""Producer settings that a user may change. The partitioner is that of Java's clients, so each key goes to the same partition."""

_OF_PYTHON = ("sasl.oauthbearer.metadata.authentication.type", "plugin.library.paths")
"""Options that confluent-kafka, not librdkafka, carries out in part."""


class Clients:
    """Creates the clients of one cluster. `place` names it in messages, without credentials; `given` are the user's settings."""

    def __init__(self, bootstrap: str, options: Mapping[str, str]) -> None:
        self.place = f"Kafka at {bootstrap}"
        self._heard = ClientErrors()
        self.given: Mapping[str, str] = {**options, "bootstrap.servers": bootstrap}
        self._given: Mapping[str, str | int] = {"log_level": _ERRORS, **self.given}
        self._callbacks: dict[str, Any] = {"logger": _log, "error_cb": self._heard}
        self._admin: AdminClient | None = None

    def heard(self) -> KafkaError | None:
        """Return the client's newest recent error from `error_cb`: a request that got no answer does not say why."""
        if self._admin is not None:
            self._admin.poll(0)
        return self._heard.newest()

    def producer(self, **settings: str | int) -> OneByOneProducer:
        """Return a new idempotent producer: all in-sync replicas acknowledge each record, once and in order.

        `settings`: the client's properties, with underscores for dots.
        """
        return OneByOneProducer({**self._producing(settings), **self._callbacks})

    def transactional_producer(self, **settings: str | int) -> ColumnarProducer | OneByOneProducer:
        """Return a new producer that sends Arrow rows, configured as by `producer`; the fastest kind that can run here."""
        library = None if any(key in self.given for key in _OF_PYTHON) else librdkafka()
        if library is None:
            return self.producer(**settings)
        return ColumnarProducer(library, self._producing(settings), heard=self._heard)

    def _producing(self, settings: Mapping[str, str | int]) -> dict[str, Any]:
        named = {key.replace("_", "."): value for key, value in settings.items()}
        fixed = {"enable.idempotence": True, "acks": "all", "allow.auto.create.topics": False}
        return {**_PRODUCING, **self._given, **fixed, **named}

    def consumer(self, **settings: str) -> Consumer:
        """Return a new `read_committed` consumer that leaves no trace on the cluster."""
        fixed: dict[str, Any] = {
            "group.id": "penstock",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "allow.auto.create.topics": False,
            "fetch.wait.max.ms": 10,
            "client.rack": "",  # from leaders only: a follower near by may not have the newest marker yet
        }
        return Consumer({**self._given, **fixed, **settings, **self._callbacks})

    @property
    def admin(self) -> AdminClient:
        """The admin client, created on first use. Another lane may close it at any moment.

        Raises KafkaException where no broker accepts the login.
        """
        admin = self._admin
        if admin is None:
            admin = AdminClient({**self._given, "allow.auto.create.topics": False, **self._callbacks})
            require_login(admin, self._heard.newest)
            self._admin = admin
        return admin

    def close(self) -> None:
        """Drop the admin client; its next use creates a new one."""
        self._admin = None
