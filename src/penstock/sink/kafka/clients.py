"""Clients of one cluster: made of the user's options, and of what the guarantee needs."""

import logging
from collections.abc import Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError
from confluent_kafka.admin import AdminClient

from penstock.kafka.login_errors import Heard, require_let_in
from penstock.sink.kafka.columnar_producer import ColumnarProducer
from penstock.sink.kafka.librdkafka import librdkafka
from penstock.sink.kafka.row_producer import OneByOneProducer

_log = logging.getLogger("penstock.kafka")
_log.addHandler(logging.NullHandler())  # else what the client retries by itself appears on the terminal
_log.propagate = False

_ERRORS = 3
"""Of syslog's levels: a client that is let go of has no logger any more, and would write to the terminal."""
_PRODUCING = {
    "linger.ms": 20,
    "batch.size": 1_000_000,
    "batch.num.messages": 2_000,  # what the client goes through anew at each answer stays in a core's cache
    "queue.buffering.max.messages": 1_000_000,
    "queue.buffering.max.kbytes": 262_144,
    "partitioner": "murmur2_random",
}
"""Figures of the client that a user may change. The partitioner is that of Java's clients: a key's partition is the same."""

_OF_PYTHON = ("sasl.oauthbearer.metadata.authentication.type", "plugin.library.paths")
"""Options that the client of Python carries out itself, in part."""


class Clients:
    """Makes them. `place` names the cluster for people, without credentials; `given` is what the user said of it."""

    def __init__(self, bootstrap: str, options: Mapping[str, str]) -> None:
        self.place = f"Kafka at {bootstrap}"
        self._heard = Heard()
        self.given: Mapping[str, str] = {**options, "bootstrap.servers": bootstrap}
        self._given: Mapping[str, str | int] = {"log_level": _ERRORS, **self.given}
        self._callbacks: dict[str, Any] = {"logger": _log, "error_cb": self._heard}
        self._admin: AdminClient | None = None

    def heard(self) -> KafkaError | None:
        """The last thing that went wrong beside all questions, not long ago: a question that got no answer says only that."""
        if self._admin is not None:
            self._admin.poll(0)
        return self._heard.recently()

    def producer(self, **settings: str | int) -> OneByOneProducer:
        """A new one, whose every record is acknowledged by all replicas in sync, once and in order.

        `settings`: keys of the client, dots as underscores.
        """
        return OneByOneProducer({**self._producing(settings), **self._callbacks})

    def transactional_producer(self, **settings: str | int) -> ColumnarProducer | OneByOneProducer:
        """As `producer`, one that takes rows as they are; that which is the fastest here."""
        library = None if any(key in self.given for key in _OF_PYTHON) else librdkafka()
        if library is None:
            return self.producer(**settings)
        return ColumnarProducer(library, self._producing(settings), heard=self._heard)

    def _producing(self, settings: Mapping[str, str | int]) -> dict[str, Any]:
        named = {key.replace("_", "."): value for key, value in settings.items()}
        fixed = {"enable.idempotence": True, "acks": "all", "allow.auto.create.topics": False}
        return {**_PRODUCING, **self._given, **fixed, **named}

    def consumer(self, **settings: str) -> Consumer:
        """A new one that sees what was committed, and leaves no trace."""
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
        """The one that asks the cluster about itself. Another lane may have it let go of at any moment.

        Raises KafkaException where no broker lets us in.
        """
        admin = self._admin
        if admin is None:
            admin = AdminClient({**self._given, **self._callbacks})
            require_let_in(admin, self._heard.recently)
            self._admin = admin
        return admin

    def close(self) -> None:
        """Let go of it; the next one who asks gets a new one."""
        self._admin = None
