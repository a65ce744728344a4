"""A reader of what is committed in a topic, who looks all the time while pipeline and broker are being killed."""

import threading
from collections import Counter
from concurrent.futures import TimeoutError as NoAnswer

from confluent_kafka import KafkaException

from tests.servers.kafka import records


class Watch:
    """What was seen stays, and of each partition comes more. `distinct`: no two records of the topic may have the same value."""

    def __init__(self, bootstrap: str, topic: str, *, distinct: bool = False) -> None:
        self._bootstrap, self._topic, self._distinct, self._over = bootstrap, topic, distinct, threading.Event()
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
                messages = records(self._bootstrap, self._topic)
            except (KafkaException, NoAnswer):  # the broker is down
                continue
            found = Counter((message.partition(), message.offset(), message.value()) for message in messages)
            if not seen <= found:
                self.violations.append(f"{(seen - found).total()} records vanished")
            doubled = [value for value, times in Counter(value for _, _, value in found).items() if times > 1]
            if self._distinct and doubled:
                self.violations.append(f"{len(doubled)} records are there twice")
            seen = found
