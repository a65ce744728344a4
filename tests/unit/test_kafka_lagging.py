"""A broker that lags behind says that its log ends before it does: that end hides no marker, and no rows."""

from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, TopicPartition

from penstock.sink.kafka import marker_store, verification
from penstock.sink.kafka.clients import Clients

KEY = b"pipeline=sink"
END = 14


def message(offset: int, value: bytes | None = None, *, at_end: bool = False) -> SimpleNamespace:
    told = KafkaError(KafkaError._PARTITION_EOF) if at_end else None
    answers = {"error": told, "offset": offset, "key": KEY, "value": value, "topic": "t", "partition": 0}
    return SimpleNamespace(**{name: lambda answer=answer: answer for name, answer in answers.items()})


class Consumer:
    """Gives what a test says, first to last."""

    def __init__(self, *messages: SimpleNamespace) -> None:
        self._left = list(messages)

    def assign(self, _: object) -> None:
        pass

    def unassign(self) -> None:
        pass

    def poll(self, _: float) -> SimpleNamespace | None:
        return self._left.pop(0) if self._left else None


@pytest.mark.parametrize("last", [message(13, b"new"), message(14, at_end=True), message(15, at_end=True)])
def test_the_newest_marker_is_not_the_last_that_such_a_broker_has(last):
    told = [message(10, b"old"), message(11, at_end=True), message(12, b"new"), last]
    assert marker_store._last(Consumer(*told), TopicPartition("t", 0, 5), END, key=KEY) == b"new"


def test_a_partition_is_read_to_its_end():
    ends = {("t", 0): END}
    assert verification._counts(message(10, b"row"), ends)
    assert not verification._counts(message(11, at_end=True), ends)
    assert verification._counts(message(12, b"row"), ends)
    assert ends
    assert not verification._counts(message(14, at_end=True), ends)
    assert not ends


def test_markers_are_read_from_leaders_whatever_rack_the_options_name(monkeypatch):
    made = []
    monkeypatch.setattr("penstock.sink.kafka.clients.Consumer", made.append)
    Clients("host:9092", {"client.rack": "a"}).consumer()
    assert made[0]["client.rack"] == ""
