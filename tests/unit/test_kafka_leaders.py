"""A partition that nobody leads for a moment: the client says so by a number below all offsets, and without an error."""

from concurrent.futures import Future
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException

from penstock.errors import Failed, Retryable
from penstock.sink.kafka import topics
from penstock.source.kafka import broker
from penstock.source.kafka.broker import Broker

NOBODY = -1001


class Cluster:
    """A client whose answers are given; what it is asked after them, it answers as after the last one."""

    def __init__(self, *offsets: int) -> None:
        self.offsets = list(offsets)

    def describe_cluster(self, **_):
        return _answered("a cluster")

    def list_offsets(self, wanted, **_):
        offset = self.offsets.pop(0) if len(self.offsets) > 1 else self.offsets[0]
        return dict.fromkeys(wanted, _answered(SimpleNamespace(offset=offset)))


def _answered(with_):
    answer = Future()
    answer.set_result(with_)
    return answer


@pytest.mark.parametrize("ask", [topics.first, topics.settled, topics.written])
def test_a_sink_takes_no_such_number_for_an_end(ask):
    """A topic of markers that seems to be empty would be taken for one in which nothing was ever published."""
    with pytest.raises(KafkaException, match="has no leader"):
        ask(Cluster(NOBODY), "t", [0])
    assert ask(Cluster(7), "t", [0]) == [7]


def test_a_broker_that_learns_of_a_topic_later_than_another_is_asked_again(monkeypatch):
    """One of several describes the topic that was just made, and another one is asked for its settings."""
    monkeypatch.setattr(topics, "_LOOK_S", 0)
    later, answers = Future(), [_answered({"cleanup.policy": SimpleNamespace(value="compact")})]
    later.set_exception(KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)))
    part = SimpleNamespace(replicas=[1, 2, 3])
    topic = SimpleNamespace(name="t", topic_id="id", partitions=[part, part], authorized_operations=None)
    cluster = SimpleNamespace(
        describe_topics=lambda *_, **__: {"t": _answered(topic)},
        describe_configs=lambda wanted, **_: {wanted[0]: answers.pop()},
    )
    answers += [later, later]
    assert topics.described(cluster, ["t"])["t"].is_compacted


def test_a_source_asks_again_with_a_new_client_and_reports_no_lost_records(monkeypatch):
    made = iter([Cluster(NOBODY), Cluster(NOBODY), Cluster(7)])
    monkeypatch.setattr(broker, "AdminClient", lambda _: next(made))
    monkeypatch.setattr(broker, "_LOOK_S", 0)
    wanted = [broker.TopicPartition("t", 0)]
    assert Broker("orders", {})._offsets(wanted, broker.OffsetSpec.latest()) == {("t", 0): 7}


def test_a_partition_that_nobody_leads_for_long_is_told(monkeypatch):
    monkeypatch.setattr(broker, "AdminClient", lambda _: Cluster(NOBODY))
    monkeypatch.setattr(broker, "_LOOK_S", 0)
    monkeypatch.setattr(broker, "_LED_S", 0)
    with pytest.raises(Retryable, match="Partition 0 of topic 't' of source 'orders' has no leader"):
        Broker("orders", {})._offsets([broker.TopicPartition("t", 0)], broker.OffsetSpec.latest())


def test_a_time_stamp_is_asked_for_again_while_nobody_leads_the_partition(monkeypatch):
    """A first start by time stamp would begin at the end, as if there were no record from then on."""
    made = iter([Cluster(NOBODY), Cluster(NOBODY), Cluster(7)])
    monkeypatch.setattr(broker, "AdminClient", lambda _: next(made))
    monkeypatch.setattr(broker, "_LOOK_S", 0)
    assert Broker("orders", {}).since({("t", 0): 1000}) == {("t", 0): 7}


def test_a_time_stamp_behind_all_records_has_no_offset_yet(monkeypatch):
    monkeypatch.setattr(broker, "AdminClient", lambda _: Cluster(-1))
    assert Broker("orders", {}).since({("t", 0): 1000}) == {("t", 0): None}
    assert Broker("orders", {}).since({}) == {}


class Silent(Cluster):
    """One that does not answer, as while no controller is elected."""

    def describe_topics(self, *_, **__):
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "Failed while waiting for controller"))

    def poll(self, _):
        return 0


class Answering(Cluster):
    def describe_topics(self, *_, **__):
        return {"t": _answered(SimpleNamespace(topic_id="an id", authorized_operations=None, partitions=[]))}


def test_brokers_that_answered_before_are_asked_again_with_a_new_client(monkeypatch):
    """The controller was killed, and it takes the others some seconds to elect one."""
    made = iter([Answering(7), Silent(7), Answering(7)])
    monkeypatch.setattr(broker, "AdminClient", lambda _: next(made))
    monkeypatch.setattr(broker, "_LOOK_S", 0)
    asked = Broker("orders", {})
    assert asked.topic_id("t") == "an id"
    asked._admin = next(made)
    assert asked.topic_id("t") == "an id"
    assert next(made, None) is None


def test_brokers_that_never_answered_are_asked_once(monkeypatch):
    made = iter([Silent(7), Answering(7)])
    monkeypatch.setattr(broker, "AdminClient", lambda _: next(made))
    with pytest.raises(Retryable, match="does not answer: Failed while waiting for controller"):
        Broker("orders", {}).topic_id("t")


@pytest.mark.parametrize(
    ("heard", "told"),
    [
        ("SSL handshake failed: Disconnected: connecting to a PLAINTEXT broker listener?", Retryable),
        ("certificate verify failed", Failed),
    ],
)
def test_a_handshake_that_a_stopping_broker_broke_off_is_no_refusal(heard, told):
    asked = Broker("orders", {})
    asked._heard(KafkaError(KafkaError._SSL, heard))
    asked._heard(KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down"))
    assert type(asked._error_for(KafkaException(KafkaError(KafkaError._TIMED_OUT, "timed out")))) is told
