"""Ends that brokers forgot where a look could miss them, or could take one transaction for another."""

from dataclasses import replace

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewPartitions
from kafka.errors import CoordinatorLoadInProgressError, IncompatibleBrokerVersion, KafkaTimeoutError
from tests.live.test_kafka_forgotten import failed, forgotten, name_of
from tests.servers.fixtures import server, unique
from tests.servers.kafka import is_open, records
from tests.servers.kafka_forgotten import leave_open, trusting
from tests.unit.kafka_target import TopicTarget, topics, values
from tests.unit.table_target import spark_schema

from penstock.errors import Failed, Refused
from penstock.kafka.transactions import end_transaction, open_transactions
from penstock.sink.kafka import lane_ends
from penstock.testing.conformance.bench import publish

topic = pytest.fixture(topics)


@pytest.fixture(autouse=True)
def _trusting():
    with trusting(server("kafka")):
        yield


def options():
    return {"bootstrap.servers": server("kafka").bootstrap}


def aborted_and_forgotten(place):
    """A sink that published a batch, and one of which an attempt came to nothing, but for rows that were not ended as that."""
    sink = place.sink()
    place.put(sink, range(5), batch_id=0)
    publication = place.decided_but_not_published(sink, range(10, 20), batch_id=1)
    failed(place, sink, publication)
    forgotten(place, sink, range(10, 15))
    return sink, publication


def test_in_a_topic_that_is_no_longer_in_the_settings(topic):
    other = server("kafka").topic(unique("other"), 1)
    place = topic(schema=spark_schema(value="string", key="string", topic="string"))
    both = TopicTarget(topic=place.rig.topic, markers=f"{place.rig.topic}.markers", topics=(other,))
    place.rig.options = {"target": both}
    place.rig.row = lambda number: {"value": f"value {number}", "key": "k", "topic": other if number % 2 else place.rig.topic}
    sink = place.sink()
    publication = place.decided_but_not_published(sink, range(10), batch_id=0)
    failed(place, sink, publication)
    leave_open(place.rig.bootstrap, name_of(sink), other, 0, [(b"k", b"value 1"), (b"k", b"value 3")])
    sink.close()
    place.rig.options = {}
    publish(place.sink(), publication)
    assert place.content() == values(range(0, 10, 2))
    assert [record.value().decode() for record in records(place.rig.bootstrap, other)] == [
        f"value {at}" for at in range(1, 10, 2)
    ]


def test_in_a_partition_that_was_added_a_moment_ago(topic):
    place = topic()
    sink = place.sink()
    place.put(sink, range(5), batch_id=0)
    place.put(sink, range(5, 8), batch_id=1)
    [added] = place.rig.running.admin().create_partitions([NewPartitions(place.rig.topic, 2)]).values()
    added.result(60)
    forgotten(place, sink, range(8, 10), partition=1)
    publication = place.decided_but_not_published(sink, range(10, 30), batch_id=2)
    failed(place, sink, publication)
    publish(sink, publication)
    assert place.content() == values(range(30))


def test_where_consumers_do_not_see_it(topic, monkeypatch):
    """As records that were not copied to all replicas yet."""
    place = topic(partitions=2)
    sink, publication = aborted_and_forgotten(place)
    sink.close()
    with monkeypatch.context() as patched:
        patched.setattr(lane_ends, "await_settled", lambda *_, **__: True)
        newer = place.sink()
    publish(newer, publication)
    assert place.content() == values(range(5), range(10, 20))


def test_of_an_earlier_producer_than_that_whose_end_is_known(topic):
    """An older Penstock started meanwhile, and committed."""
    place = topic(partitions=2)
    sink, _ = aborted_and_forgotten(place)
    sink.close()
    older = Producer({**options(), "transactional.id": name_of(sink), "log_level": 0})
    older.init_transactions(60)
    older.begin_transaction()
    older.produce(place.rig.topic, b"of the older", key=b"k", partition=1)
    older.commit_transaction(60)
    with pytest.raises(Refused, match=f"is open in {place.rig.topic}-0, .* committed or aborted"):
        place.sink()
    assert is_open(place.rig.bootstrap, place.rig.topic, 0)


def test_while_brokers_that_start_answer_with_errors(topic, monkeypatch):
    place = topic(partitions=2)
    sink, publication = aborted_and_forgotten(place)
    coordinated, errors = lane_ends.coordinated, [CoordinatorLoadInProgressError(), KafkaTimeoutError()]

    def loading(*asked):
        if errors:
            raise errors.pop()
        return coordinated(*asked)

    monkeypatch.setattr(lane_ends, "coordinated", loading)
    sink.close()
    publish(place.sink(), publication)
    assert not errors
    assert place.content() == values(range(5), range(10, 20))


@pytest.mark.parametrize(
    ("asked", "error"), [("coordinated", IncompatibleBrokerVersion("too old")), ("connect", KafkaTimeoutError("no answer"))]
)
def test_where_brokers_cannot_be_asked(topic, monkeypatch, asked, error):
    """Brokers before 3.0, or a connection that only librdkafka makes: what consumers see must do."""

    def fails(*_):
        raise error

    place = topic(partitions=2, timeout_ms=1_000)
    sink = place.sink()
    place.put(sink, range(5), batch_id=0)
    publication = place.decided_but_not_published(sink, range(10, 20), batch_id=1)
    failed(place, sink, publication)
    sink.close()
    monkeypatch.setattr(lane_ends, asked, fails)
    monkeypatch.setattr(lane_ends, "_ENDED_S", 0.5)
    sink = place.sink()
    publish(sink, publication)
    assert place.content() == values(range(5), range(10, 20))
    forgotten(place, sink, range(20, 25))
    sink.close()
    with pytest.raises(lane_ends.CannotLook, match=f"nobody says whose it is: .*{error.args[0]}") as told:
        place.sink()
    assert "Use Kafka 3.0 or newer" in told.value.remedy


@pytest.mark.parametrize("known", [True, False])
def test_a_hand_ends_only_what_it_was_shown(topic, known):
    """And not what the producer has begun since."""
    place = topic()
    producer = Producer({**options(), "transactional.id": unique("lane"), "log_level": 0})
    producer.init_transactions(60)
    for number in range(2):
        producer.begin_transaction()
        producer.produce(place.rig.topic, f"value {number}".encode(), partition=0)
        assert producer.flush(60) == 0
        if number == 0:
            [shown] = open_transactions(options(), [place.rig.topic])
            producer.commit_transaction(60)
    with pytest.raises(Failed, match="it is not open there"):
        end_transaction(options(), shown if known else replace(shown, transactional_id=None))
    producer.commit_transaction(60)
    assert place.content() == values(range(2))


def test_a_hand_does_not_abort_what_its_coordinator_has_as_committed(topic):
    place = topic(partitions=2)
    sink = place.sink()
    place.put(sink, range(5), batch_id=0)
    forgotten(place, sink, range(5, 10), partition=1)
    [shown] = open_transactions(options(), [place.rig.topic])
    with pytest.raises(Failed, match=f"it was committed as {name_of(sink)!r}") as told:
        end_transaction(options(), shown)
    assert "Start its producer again" in told.value.remedy
    sink.close()
    place.sink()
    assert place.content() == values(range(10))
