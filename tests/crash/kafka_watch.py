"""A reader of what is committed in a topic, who reads all the time while pipeline and broker are being killed."""

import threading
from collections import Counter
from collections.abc import Sequence
from typing import Any

from confluent_kafka import Consumer, Message, TopicPartition

from tests.servers.kafka import records


class Watch:
    """What was read once stays. `distinct`: no two records of the topic may have the same value.

    One client reads on from where it is: clients that begin anew while a broker is away keep a whole processor busy.
    """

    def __init__(self, bootstrap: str, topic: str, *, distinct: bool = False) -> None:
        self._bootstrap, self._topic, self._distinct, self._over = bootstrap, topic, distinct, threading.Event()
        self._read = Counter[tuple[int, int, bytes]]()
        self.violations: list[str] = []
        self._thread = threading.Thread(target=self._read_on, daemon=True)

    def __enter__(self) -> "Watch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        vanished = self._read - Counter(map(_place, records(self._bootstrap, self._topic)))
        if vanished:
            self.violations.append(f"{vanished.total()} records vanished")

    def _read_on(self) -> None:
        settings: dict[str, Any] = {"group.id": "watch", "isolation.level": "read_committed", "enable.auto.commit": False}
        consumer = Consumer({"bootstrap.servers": self._bootstrap, "log_level": 0, "reconnect.backoff.max.ms": 100, **settings})
        try:
            while not self._over.is_set():
                if not consumer.assignment():  # a run may have yet to make the topic
                    partitions = consumer.list_topics(self._topic, 60).topics[self._topic].partitions
                    consumer.assign([TopicPartition(self._topic, partition, 0) for partition in partitions])
                self._note([message for message in consumer.consume(1000, 0.2) if message.error() is None])
        finally:
            consumer.close()

    def _note(self, messages: Sequence[Message]) -> None:
        self._read.update(map(_place, messages))
        values = Counter(value for _, _, value in self._read.elements())
        doubled = [value for value, times in values.items() if times > 1]
        if self._distinct and doubled:
            self.violations.append(f"{len(doubled)} records are there twice")


def _place(message: Message) -> tuple[int, int, bytes]:
    return message.partition(), message.offset(), message.value()
