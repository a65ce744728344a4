"""What a task of Penstock's own reader gets from a real broker: exactly the records of its piece, or an error. Without Spark."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer, TopicPartition
from tests.servers.fixtures import server, unique
from tests.servers.kafka import KafkaServer, await_settled

from penstock.core.kafka_offset import read_offset
from penstock.errors import Failed, PenstockError, Retryable
from penstock.source.kafka.broker import Broker
from penstock.source.kafka.reader import fetch
from penstock.source.kafka.reader.plan import Piece
from penstock.source.kafka.reader.settings import ReaderSettings
from penstock.source.kafka.reader.stream import OffsetStream


def settings(**more: Any) -> ReaderSettings:
    client = {"bootstrap.servers": server("kafka").bootstrap, **more.pop("client", {})}
    return ReaderSettings(**{"name": "s", "client": client, "starting": "earliest", "patience_s": 20, **more})


def new_topic(**more: str) -> str:
    return str(server("kafka").topic(unique("fetched"), 1, **more))


def produce(topic: str, count: int, *, size: int = 10, ends: str | None = None) -> None:
    """Records of a transaction that `ends` by commit or abort, or stays open; without one if None."""
    producer = Producer(
        {"bootstrap.servers": server("kafka").bootstrap, "log_level": 0} | ({"transactional.id": unique("fed")} if ends else {})
    )
    if ends:
        producer.init_transactions(60)
        producer.begin_transaction()
    for number in range(count):
        producer.produce(topic, b"%d" % number + b"x" * size)
        producer.poll(0)
    assert producer.flush(60) == 0
    if ends == "commit":
        producer.commit_transaction(60)
    elif ends == "abort":
        producer.abort_transaction(60)
    elif ends:
        _kept.append(producer)
        return
    if ends:
        await_settled(server("kafka").bootstrap, topic, 1)


_kept: list[Any] = []
"""Producers whose transactions stay open."""


def piece(topic: str, first: int, end: int, topic_id: str | None = None) -> Piece:
    return Piece(topic=topic, topic_id=topic_id, partition=0, first=first, end=end)


def offsets(one: Piece, given: ReaderSettings | None = None) -> list[int]:
    return [offset for batch in fetch.batches_of(one, given or settings()) for offset in batch.column("offset").to_pylist()]


def ends_of(topic: str, given: ReaderSettings) -> dict[str, Any]:
    broker = Broker("s", given.client)
    mine = OffsetStream(replace(given, subscribe=(topic,)), lambda: broker)
    return mine.advance(mine.begin(), None)


def test_a_piece_ends_before_its_end_whatever_stands_behind() -> None:
    topic = new_topic()
    produce(topic, 100)
    assert offsets(piece(topic, 10, 60)) == list(range(10, 60))
    assert offsets(piece(topic, 60, 100)) == list(range(60, 100))
    produce(topic, 1, ends="commit")
    produce(topic, 10)
    assert offsets(piece(topic, 90, 102)) == list(range(90, 101)), "its last offset is a mark's, for which a record behind came"


@pytest.mark.parametrize("how", ["commit", "abort"])
def test_marks_and_aborted_records_take_offsets_and_keep_nobody_waiting(how: str) -> None:
    topic = new_topic()
    produce(topic, 10)
    produce(topic, 5, ends=how)
    found = [*range(10), *(range(10, 15) if how == "commit" else [])]
    assert read_offset(ends_of(topic, settings())).topics == {topic: {0: 16}}
    assert offsets(piece(topic, 0, 16)) == found
    assert offsets(piece(topic, 0, 13)) == [offset for offset in found if offset < 13]
    assert offsets(piece(topic, 15, 16)) == []


def test_a_batch_ends_before_an_open_transaction() -> None:
    topic = new_topic()
    produce(topic, 10)
    produce(topic, 5, ends="never")
    produce(topic, 5)
    assert read_offset(ends_of(topic, settings())).topics == {topic: {0: 10}}
    loose = settings(client={"isolation.level": "read_uncommitted"})
    assert read_offset(ends_of(topic, loose)).topics == {topic: {0: 20}}
    assert offsets(piece(topic, 0, 20), loose) == list(range(20))


def test_records_that_are_gone_are_an_error_unless_they_may_be_passed_over() -> None:
    topic = new_topic()
    produce(topic, 40)
    remove(topic, 25)
    with pytest.raises(Retryable, match="from offset 20 to 39 are gone: the first that Kafka still has is 25"):
        offsets(piece(topic, 20, 40))
    lenient = settings(fails_on_loss=False)
    assert offsets(piece(topic, 20, 40), lenient) == list(range(25, 40))
    assert offsets(piece(topic, 10, 20), lenient) == []
    assert offsets(piece(topic, 25, 40)) == list(range(25, 40))


def test_records_that_go_while_they_are_read_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """They were there when the task looked."""
    topic = new_topic()
    produce(topic, 40)
    looked = fetch._first

    def removing(*given: Any) -> int:
        found = looked(*given)
        remove(topic, 30)
        return found

    monkeypatch.setattr(fetch, "_first", removing)
    with pytest.raises(Retryable, match="are gone: Kafka removed them while they were read"):
        offsets(piece(topic, 0, 40))


def test_a_log_that_ends_before_the_piece_is_told() -> None:
    topic = new_topic()
    produce(topic, 10)
    with pytest.raises(Retryable, match="ends at 10, but the batch reads up to 14"):
        offsets(piece(topic, 0, 15))


def test_another_topic_of_that_name_is_not_read() -> None:
    topic = new_topic()
    produce(topic, 10)
    broker = Broker("s", settings().client)
    own = broker.topic_id(topic)
    assert len(offsets(piece(topic, 0, 10, own))) == 10
    with pytest.raises(Retryable, match=f"has the id {own} now, and had other".replace("+", r"\+")):
        offsets(piece(topic, 0, 10, "other"))
    with pytest.raises(Retryable, match="is not there any more"):
        offsets(piece(unique("never-made"), 0, 10))


def test_a_topic_that_is_created_again_while_it_is_read_is_noticed() -> None:
    running, topic = server("kafka"), new_topic()
    produce(topic, 10)
    own = Broker("s", settings().client).topic_id(topic)
    reading = fetch.batches_of(piece(topic, 0, 10, own), settings())
    next(reading)
    running.remove(topic)
    while topic in running.admin().list_topics(timeout=60).topics:
        pass
    running.topic(topic)
    with pytest.raises(Retryable, match="of which a batch was planned, has the id"):
        next(reading)


def test_arrow_batches_are_bounded() -> None:
    topic = new_topic()
    produce(topic, 25_000)
    produce(topic, 30, size=900_000)
    sizes = [(batch.num_rows, batch.nbytes) for batch in fetch.batches_of(piece(topic, 0, 25_030), settings())]
    assert sum(rows for rows, _ in sizes) == 25_030
    assert max(rows for rows, _ in sizes) < 2 * fetch._ROWS
    assert max(size for _, size in sizes) < 2.5 * fetch._BYTES


def test_large_records_that_came_at_once_are_cut() -> None:
    large = fetch._BYTES // 3
    records = [b"a" * large] * 11 + [b"b" * 3 * fetch._BYTES] + [b""] * 3
    cut = list(fetch._gathered(iter([records])))
    assert [record for part in cut for record in part] == records
    assert [len(part) for part in cut] == [6, 5, 1, 3]


def test_clients_are_kept_unless_they_met_an_error() -> None:
    topic = new_topic()
    produce(topic, 10)
    fetch._idle.clear()
    offsets(piece(topic, 0, 10))
    [first] = fetch._idle.values()
    offsets(piece(topic, 3, 7))
    assert list(fetch._idle.values()) == [first]
    with pytest.raises(Retryable):
        offsets(piece(topic, 0, 99))
    assert fetch._idle == {}
    reading = fetch.batches_of(piece(topic, 0, 10), settings())
    next(reading)
    reading.close()
    assert fetch._idle == {}
    assert offsets(piece(topic, 0, 10)) == list(range(10))


def test_a_broker_that_sends_nothing_is_waited_for_and_then_told(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = new_topic()
    produce(topic, 10)
    running = server("kafka")
    once_it_looked(monkeypatch, running.freeze)
    with thawed(running), pytest.raises(Retryable, match=r"sent nothing of topic .*, partition 0, from offset 0 on for 1 s"):
        offsets(piece(topic, 0, 10), settings(patience_s=1))


def once_it_looked(monkeypatch: pytest.MonkeyPatch, *acts: Callable[[], object]) -> None:
    """Do that when a task knows what the broker has, and has fetched nothing yet."""
    looked = fetch._first

    def acting(*given: Any) -> int:
        found = looked(*given)
        for act in acts:
            act()
        return found

    monkeypatch.setattr(fetch, "_first", acting)


@contextmanager
def thawed(running: KafkaServer) -> Iterator[None]:
    try:
        yield
    finally:
        running.thaw()


def test_a_broker_that_comes_back_is_read_on(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = new_topic()
    produce(topic, 10)
    running = server("kafka")
    once_it_looked(monkeypatch, running.kill, running.start)
    assert offsets(piece(topic, 0, 10)) == list(range(10))


@pytest.mark.parametrize(
    ("code", "kind", "remedy"),
    [
        (KafkaError.GROUP_AUTHORIZATION_FAILED, Failed, "the right Read on the topic and on the consumer group 'ours'"),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, Failed, "Correct the credentials"),
        (KafkaError._TRANSPORT, Retryable, "See whether the brokers are up"),
    ],
)
def test_who_is_not_let_in_need_not_try_again(code: int, kind: type[PenstockError], remedy: str) -> None:
    given = ReaderSettings(name="s", client={"bootstrap.servers": "host:9092", "group.id": "ours"})
    told = fetch._error_for(piece("t", 0, 9), given, KafkaError(code))
    assert type(told) is kind
    assert remedy in told.remedy


def remove(topic: str, below: int) -> None:
    [answer] = server("kafka").admin().delete_records([TopicPartition(topic, 0, below)]).values()
    answer.result(60)
