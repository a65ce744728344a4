"""A topic on the broker of this run, for the tests of the kafka sink: rows as mappings, delivered step by step."""

import itertools
import json
import threading
from collections import Counter
from typing import Any

from confluent_kafka import Producer
from tests.conformance.topic_rig import HEADERS, KafkaRig, as_rows
from tests.servers.fixtures import server, unique
from tests.servers.kafka import is_open, records
from tests.unit.table_target import spark_schema

from penstock.core import faults
from penstock.kafka.transactions import open_transactions
from penstock.sink.kafka.target import TopicTarget
from penstock.testing.conformance import Bench
from penstock.testing.conformance.rig import Row


class TopicRig(KafkaRig):
    """`options` go to the sink; `bootstrap`: where it is asked instead of at the broker itself; `running`: another broker."""

    def __init__(
        self, directory, *, schema=None, partitions=1, topic=None, bootstrap=None, settings=None, running=None, **options
    ):
        self.running = running or server("kafka")
        kept = {"retention_ms": "-1", "retention_bytes": "-1", **(settings or {})}
        super().__init__(
            directory, bootstrap or self.running.bootstrap, topic or self.running.topic(unique("u"), partitions, **kept)
        )
        self.schema = schema or spark_schema(value="string", key="string")
        self.options = options

    def make(self, **changed: Any):
        return super().make(**{**self.options, **changed})

    def row(self, number: int) -> dict[str, Any]:
        return {name: f"{name} {number}" for name in [part["name"] for part in json.loads(self.schema)["fields"]]}

    def read_back(self) -> "list[Row]":
        names = [part["name"] for part in json.loads(self.schema)["fields"]]
        found = as_rows(records(self.running.bootstrap, self.topic))
        return [{name: _text(row[name]) for name in names if name in row} for row in found]


class TopicBench(Bench):
    """A bench and its rig in one."""

    def put(self, sink, *attempts, batch_id):
        return self.deliver(sink, *(self.rows(ids) for ids in attempts), batch_id=batch_id)

    def decided_but_not_published(self, sink, *attempts, batch_id):
        staged = [
            (self.rows(ids), self.stage(sink, self.rows(ids), batch_id=batch_id, partition=at)) for at, ids in enumerate(attempts)
        ]
        return self.decide(*staged, batch_id=batch_id).publication

    def content(self) -> "Counter[str]":
        """Values, however often each is there and in whatever order."""
        return Counter(row["value"] for row in self.rig.read_back())

    def await_open(self, *, is_so):
        """A broker does what it has acknowledged a little later; one that was killed has its logs to read first."""
        for _ in range(3_000):
            if is_open(self.rig.bootstrap, self.rig.topic) is is_so:
                return
            threading.Event().wait(0.02)
        raise AssertionError(f"expected {is_so}, found {self._open()}")

    def await_ended(self) -> bool:
        """Whether the broker ended what was open there: one that was killed forgets it at times, and no coordinator knows it."""
        for _ in range(900):
            if all(one.transactional_id is None for one in self._open()):
                return not is_open(self.rig.bootstrap, self.rig.topic)
            threading.Event().wait(0.1)
        raise AssertionError(f"expected none that a coordinator knows, found {self._open()}")

    def _open(self):
        return open_transactions({"bootstrap.servers": self.rig.bootstrap}, [self.rig.topic])

    def markers(self):
        """Their records, oldest first, as far as they were not compacted."""
        return records(self.rig.running.bootstrap, f"{self.rig.topic}.markers")


def values(*attempts):
    """What `content` gives for rows of these numbers."""
    return Counter(f"value {number}" for ids in attempts for number in ids)


def begun(place):
    """The producer of a transaction in the topic of markers that was not ended yet."""
    producer = Producer({"bootstrap.servers": place.rig.bootstrap, "transactional.id": place.rig.topic, "log_level": 0})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(f"{place.rig.topic}.markers", key=b"nobody", value=b"aborted", partition=0)
    assert producer.flush(60) == 0
    assert is_open(place.rig.bootstrap, f"{place.rig.topic}.markers")
    return producer


def topics(tmp_path):
    """A fixture: makes topics, and closes what was made of them in the end."""
    made, numbers = [], itertools.count()

    def make(**options):
        directory = tmp_path / str(next(numbers))
        directory.mkdir()
        made.append(TopicBench(TopicRig(directory, **options)))
        return made[-1]

    yield make
    faults.arm("")
    for one in made:
        one.close()


def _text(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value


__all__ = ["HEADERS", "TopicTarget", "begun", "topics", "values"]
