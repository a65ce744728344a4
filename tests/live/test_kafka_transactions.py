"""Transactions that are open on a real broker: listed with their owners, and ended by hand."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from socket import create_server
from threading import enumerate as threads
from typing import Any

import pytest
from confluent_kafka import IsolationLevel, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import OffsetSpec
from kafka.errors import KafkaError
from tests.servers.fixtures import server, unique
from tests.servers.kafka import await_settled, records

from penstock.errors import Failed, Usage
from penstock.kafka import transactions
from penstock.kafka.transactions import end_transaction, open_transactions


@pytest.fixture
def topic() -> str:
    return str(server("kafka").topic(unique("lingering"), partitions=2))


@contextmanager
def lingering(topic: str, *, partition: int = 0, records: int = 3) -> "Iterator[tuple[str, Any]]":
    """A producer that has written there and does not commit, by its transactional id."""
    name = unique("lane")
    producer = Producer({"bootstrap.servers": server("kafka").bootstrap, "transactional.id": name, "log_level": 0})
    producer.init_transactions(60)
    producer.begin_transaction()
    for number in range(records):
        producer.produce(topic, f"{number}".encode(), partition=partition)
    producer.flush(60)
    yield name, producer


def options() -> dict[str, str]:
    return {"bootstrap.servers": server("kafka").bootstrap}


def test_a_connection_that_fails_leaves_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sink tries again and again while its brokers do not answer."""
    monkeypatch.setattr(transactions, "_ANSWER_MS", 200)
    before = threads()
    with create_server(("127.0.0.1", 0)) as silent, pytest.raises(KafkaError):
        transactions.connect({"bootstrap.servers": f"127.0.0.1:{silent.getsockname()[1]}"})
    assert threads() == before


def stable_end(topic: str, partition: int = 0) -> int:
    """Where readers of committed records stop."""
    at = TopicPartition(topic, partition)
    asked = server("kafka").admin().list_offsets({at: OffsetSpec.latest()}, isolation_level=IsolationLevel.READ_COMMITTED)
    return int(asked[at].result().offset)


def test_none_where_nothing_is_open(topic: str) -> None:
    with lingering(topic) as (_, producer):
        producer.commit_transaction(60)
    assert open_transactions(options(), [topic]) == []


def test_an_open_one_is_told_with_its_owner_and_where_readers_stop(topic: str) -> None:
    with lingering(topic) as (_, done):
        done.commit_transaction(60)
    with lingering(topic, partition=1) as (name, _), lingering(topic) as (second, _):
        found = {one.partition: one for one in open_transactions(options(), [topic])}
    assert {number: one.transactional_id for number, one in found.items()} == {0: second, 1: name}
    assert (found[0].offset, found[1].offset) == (stable_end(topic), 0) == (4, 0)
    assert found[1].timeout_ms == 60_000
    assert not found[1].hangs


def test_readers_see_a_part_of_a_committed_transaction_while_an_older_one_is_open_in_its_partition(topic: str) -> None:
    """So with several lanes a reader may see a lane's rows of a partition in two steps (docs/howto/kafka.md)."""
    with lingering(topic, records=1) as (_, first):
        with lingering(topic, records=2) as (_, second):
            first.produce(topic, b"late", partition=0)
            assert first.flush(60) == 0
            first.commit_transaction(60)
            assert [message.value() for message in records(server("kafka").bootstrap, topic)] == [b"0"]
            second.commit_transaction(60)
        await_settled(server("kafka").bootstrap, topic, 2)
    assert [message.value() for message in records(server("kafka").bootstrap, topic)] == [b"0", b"0", b"1", b"late"]


def test_one_is_ended_and_its_owner_fenced(topic: str) -> None:
    with lingering(topic) as (_, producer):
        [one] = open_transactions(options(), [topic])
        end_transaction(options(), one)
        assert open_transactions(options(), [topic]) == []
        assert stable_end(topic) == 4
        with pytest.raises(KafkaException, match=r"_FENCED|fenced"):
            producer.commit_transaction(60)


def test_one_that_no_coordinator_knows_is_ended_on_its_partition(topic: str) -> None:
    with lingering(topic):
        [one] = open_transactions(options(), [topic])
        end_transaction(options(), replace(one, transactional_id=None))
        assert stable_end(topic) == 4
    assert open_transactions(options(), [topic]) == []


def test_one_of_a_producer_that_has_ended_others_there_is_ended_too(topic: str) -> None:
    """Its partition takes no end from an older coordinator than that of the last one."""
    with lingering(topic) as (_, producer):
        producer.commit_transaction(60)
        producer.begin_transaction()
        producer.produce(topic, b"again", partition=0)
        assert producer.flush(60) == 0
        [one] = open_transactions(options(), [topic])
        end_transaction(options(), replace(one, transactional_id=None))
        assert stable_end(topic) == 6


def test_one_that_begins_while_the_coordinators_are_asked_is_not_said_to_hang(
    topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, late = transactions._known, ExitStack()

    def known(admin: Any) -> Any:
        found = asked(admin)
        late.enter_context(lingering(topic))
        return found

    monkeypatch.setattr(transactions, "_known", known)
    with late, lingering(topic, partition=1) as (name, _):
        assert [one.transactional_id for one in open_transactions(options(), [topic])] == [name]


def test_one_that_is_not_there_is_not_said_to_be_ended(topic: str) -> None:
    with lingering(topic):
        [one] = open_transactions(options(), [topic])
        end_transaction(options(), one)
    with pytest.raises(Failed, match="Nothing says that transaction"):
        end_transaction(options(), replace(one, transactional_id=None, producer_epoch=-7))


def test_nobody_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.kafka.transactions._ANSWER_MS", 500)
    with pytest.raises(Failed, match=r"Kafka at 127.0.0.1:1 did not say"):
        open_transactions({"bootstrap.servers": "127.0.0.1:1"}, ["any"])


def test_a_connection_that_cannot_be_made() -> None:
    with pytest.raises(Usage, match=r"with sasl.oauthbearer.config"):
        open_transactions({**options(), "sasl.oauthbearer.config": "x"}, ["any"])
