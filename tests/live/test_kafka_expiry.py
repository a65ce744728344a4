"""Brokers forget a producer that was idle for a week: here for half a second, by a broker that is told to."""

import time

import pytest
from kafka import TopicPartition
from kafka.admin import KafkaAdminClient
from tests.servers import kafka
from tests.unit.kafka_target import topics, values

from penstock.sink.kafka import marker_store
from penstock.testing.conformance import PIPELINE
from penstock.testing.conformance.bench import publish

topic = pytest.fixture(topics)
SOON = {
    "transactional_id_expiration_ms": "500",
    "transaction_remove_expired_transaction_cleanup_interval_ms": "100",
    "producer_id_expiration_ms": "500",
    "producer_id_expiration_check_interval_ms": "100",
}


@pytest.fixture(scope="module")
def forgetful(tmp_path_factory):
    """Such a broker."""
    with kafka.running(tmp_path_factory.mktemp("forgetful"), **SOON) as running:
        yield running


@pytest.fixture
def asked(forgetful):
    """A client that asks it what it knows of producers."""
    admin = KafkaAdminClient(bootstrap_servers=forgetful.bootstrap)
    yield admin
    admin.close()


def await_forgotten(admin, place, sink, lanes):
    """Neither a coordinator nor a partition knows the producers of the sink any more."""
    names = {marker_store.transactional_id(PIPELINE, sink.name, lane) for lane in range(lanes)}
    partitions = [
        TopicPartition(place.rig.topic, 0),
        *(TopicPartition(f"{place.rig.topic}.markers", lane) for lane in range(lanes)),
    ]
    deadline = time.monotonic() + 60
    while names & known_ids(admin) or any(state.active_producers for state in admin.describe_producers(partitions).values()):
        assert time.monotonic() < deadline, "the broker forgets nobody"


def known_ids(admin):
    return {one.transactional_id for ones in admin.list_transactions().values() for one in ones}


@pytest.mark.parametrize("lanes", [1, 2])
def test_a_sink_that_was_idle_until_brokers_forgot_it_is_exact(topic, forgetful, asked, lanes):
    place = topic(running=forgetful, lanes=lanes)
    sink = place.sink()
    place.put(sink, range(10), range(10, 20), batch_id=0)
    for batch_id in (1, 2):
        await_forgotten(asked, place, sink, lanes)
        numbers = [range(batch_id * 20 + part * 10, batch_id * 20 + part * 10 + 10) for part in (0, 1)]
        publication = place.decided_but_not_published(sink, *numbers, batch_id=batch_id)
        publish(sink, publication)
    assert place.content() == values(range(60))
    assert place.verify(sink).ok


def test_records_with_names_go_on_after_it(topic, forgetful, asked):
    place = topic(running=forgetful, keyed=True)
    sink = place.sink()
    place.put(sink, range(10), batch_id=0)
    await_forgotten(asked, place, sink, 1)
    publish(sink, place.decided_but_not_published(sink, range(10, 20), batch_id=1))
    assert place.content() == values(range(20))


def test_a_start_after_it_is_exact(topic, forgetful, asked):
    place = topic(running=forgetful)
    sink = place.sink()
    place.put(sink, range(10), batch_id=0)
    await_forgotten(asked, place, sink, 1)
    newer = place.sink()
    place.put(newer, range(10, 20), batch_id=1)
    assert place.content() == values(range(20))
