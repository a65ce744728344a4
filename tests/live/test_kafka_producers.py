"""The two ways in which a transaction's rows get to a real broker: as they lie in memory, and one by one. They do the same."""

import gc
import logging
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from tests.servers.fixtures import server, unique
from tests.servers.kafka import await_settled, is_open, records

from penstock.core import faults
from penstock.errors import Retryable
from penstock.sink.kafka import clients as making
from penstock.sink.kafka.clients import Clients, OneByOneProducer
from penstock.sink.kafka.columnar_producer import ColumnarProducer
from penstock.sink.kafka.lane_producer import Transactions
from penstock.sink.kafka.librdkafka import librdkafka

WAYS = ("columnar", "one by one")
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
NOWHERE = "127.0.0.1:9"


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param != WAYS[0]:
        monkeypatch.setattr(making, "librdkafka", lambda: None)
    return str(request.param)


@pytest.fixture
def topic() -> str:
    return str(server("kafka").topic(unique("made"), 3))


def producer(*, bootstrap: str = "", **settings: Any) -> Any:
    clients = Clients(bootstrap or server("kafka").bootstrap, {})
    return clients.transactional_producer(transactional_id=unique("made"), **settings)


def open_one(**settings: Any) -> Any:
    made = producer(**settings)
    made.init_transactions(30)
    made.begin_transaction()
    return made


def sent(rows: "pa.RecordBatch", topic: str, **settings: Any) -> list[Any]:
    """What a reader of committed records finds, in the order of the offsets of each partition."""
    made = open_one(**settings)
    made.send(rows, topic=topic)
    made.commit_transaction(30)
    return records(server("kafka").bootstrap, topic)


def code_of(caught: "pytest.ExceptionInfo[KafkaException]") -> int:
    return int(caught.value.args[0].code())


def test_the_client_shows_what_it_takes_to_hand_over_rows_as_they_are() -> None:
    assert isinstance(producer(), ColumnarProducer)


def test_a_client_that_does_not_show_it_is_handed_them_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    librdkafka.cache_clear()
    monkeypatch.setattr("penstock.sink.kafka.librdkafka.cimpl", pa)  # which is no client of Kafka
    assert isinstance(producer(), OneByOneProducer)
    librdkafka.cache_clear()


def test_each_way_is_the_one_that_is_asked_for(way: str) -> None:
    assert isinstance(producer(), ColumnarProducer if way == "columnar" else OneByOneProducer)


VALUES = (None, b"", b"\0", b"text", b"\xff" * 10_000, "ü".encode())


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.string(), pa.large_string()], ids=str)
@pytest.mark.parametrize("cut", [0, 3])
@pytest.mark.usefixtures("way")
def test_values_and_keys_arrive_as_they_are(topic: str, kind: "pa.DataType", cut: int) -> None:
    """Those of a slice, too; and NULL is not the empty value."""
    given = VALUES if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) else (None, "", "\0", "text", "ü" * 5_000, "ü")
    values, keys = list(given), list(reversed(given))
    rows = pa.RecordBatch.from_pydict({"value": pa.array(values, kind), "key": pa.array(keys, kind)}).slice(cut)
    found = sorted(((one.value(), one.key()) for one in sent(rows, topic)), key=repr)
    as_bytes = [
        [None if one is None else one if isinstance(one, bytes) else one.encode() for one in part] for part in (values, keys)
    ]
    assert found == sorted(zip(as_bytes[0][cut:], as_bytes[1][cut:], strict=True), key=repr)


@pytest.mark.usefixtures("way")
def test_rows_without_a_byte_arrive(topic: str) -> None:
    rows = pa.RecordBatch.from_pydict({"value": pa.array([b"", None, b""]), "key": pa.array([None, b"", None], pa.binary())})
    assert sorted(((one.value(), one.key()) for one in sent(rows, topic)), key=repr) == [(None, b""), (b"", None), (b"", None)]
    nothing = pa.RecordBatch.from_pydict({"value": pa.array([], pa.binary())})
    assert len(sent(nothing, topic)) == 3


def test_a_key_has_its_partition_in_either_way_and_its_order(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for library in (librdkafka(), None):
        monkeypatch.setattr(making, "librdkafka", lambda library=library: library)
        topic = server("kafka").topic(unique("keyed"), 3)
        numbers = range(3_000)
        keys, values = [f"k{at % 50}" for at in numbers], [str(at) for at in numbers]
        got = sent(pa.RecordBatch.from_pydict({"value": values, "key": keys}), topic)
        found.append({one.key(): one.partition() for one in got})
        of_each = {key: [int(one.value()) for one in got if one.key() == key] for key in found[-1]}
        assert of_each == {f"k{at}".encode(): list(range(at, 3_000, 50)) for at in range(50)}
    assert found[0] == found[1]
    assert set(found[0].values()) == {0, 1, 2}


@pytest.mark.usefixtures("way")
def test_a_row_goes_to_the_topic_and_the_partition_that_it_names(topic: str) -> None:
    """Of which the producer knows nothing yet."""
    other = server("kafka").topic(unique("other"), 2)
    named = [topic, other, other, topic, topic]
    at = pa.array([2, 1, 0, 0, 2], pa.int32())
    rows = pa.RecordBatch.from_pydict({"partition": at, "topic": named, "value": ["a", "b", "c", "d", "e"]})
    got = [*sent(rows, "no-such-topic"), *records(server("kafka").bootstrap, topic), *records(server("kafka").bootstrap, other)]
    assert sorted((one.topic() == topic, one.partition(), one.value()) for one in got) == [
        *((False, 0, b"c"), (False, 1, b"b")),
        *((True, 0, b"d"), (True, 2, b"a"), (True, 2, b"e")),
    ]
    assert [one.value() for one in records(server("kafka").bootstrap, topic) if one.partition() == 2] == [b"a", b"e"]


@pytest.mark.parametrize("with_keys", [True, False])
@pytest.mark.usefixtures("way")
def test_headers_arrive_as_they_are(topic: str, *, with_keys: bool) -> None:
    given = [None, [], [("a", b"1")], [("a", b""), ("a", None), ("ü", b"\0"), ("", b"x" * 2_000)], [("z", b"9")]]
    column = pa.array([None if one is None else [{"key": key, "value": value} for key, value in one] for one in given], HEADERS)
    rows: dict[str, Any] = {"headers": column, "value": [f"{at}" for at in range(5)], "partition": pa.array([1] * 5, pa.int32())}
    rows |= {"key": ["k", None, "", "k", "l"]} if with_keys else {}
    got = sent(pa.RecordBatch.from_pydict(rows).slice(1), topic)
    assert [(one.value(), one.headers() or []) for one in got] == [(f"{at}".encode(), given[at]) for at in range(1, 5)]
    assert [one.key() for one in got] == ([None, b"", b"k", b"l"] if with_keys else [None] * 4)
    assert {one.partition() for one in got} == {1}


@pytest.mark.usefixtures("way")
def test_rows_without_a_header_arrive_as_they_come_from_a_file(topic: str) -> None:
    """Where a column of no values has no buffers."""
    rows = pa.RecordBatch.from_pydict({"value": ["a", None], "headers": pa.array([[], None], HEADERS)})
    file = pa.BufferOutputStream()
    with pa.ipc.new_stream(file, rows.schema) as writer:
        writer.write_batch(rows)
    with pa.ipc.open_stream(file.getvalue()) as reader:
        got = sent(reader.read_next_batch(), topic)
    assert sorted(((one.value(), one.headers()) for one in got), key=repr) == [(None, None), (b"a", None)]


@pytest.mark.parametrize("with_headers", [True, False])
@pytest.mark.usefixtures("way")
def test_more_than_the_client_has_room_for_arrives_in_order(topic: str, *, with_headers: bool) -> None:
    rows: dict[str, Any] = {"value": [f"{at}" for at in range(2_000)], "partition": pa.array([0] * 2_000, pa.int32())}
    rows |= {"headers": pa.array([[{"key": "h", "value": b"1"}]] * 2_000, HEADERS)} if with_headers else {}
    got = sent(pa.RecordBatch.from_pydict(rows), topic, queue_buffering_max_messages=300, linger_ms=0)
    assert [int(one.value()) for one in got] == list(range(2_000))


@pytest.mark.parametrize("with_headers", [True, False])
@pytest.mark.usefixtures("way")
def test_a_record_that_is_too_large_is_an_error_and_nothing_is_committed(topic: str, *, with_headers: bool) -> None:
    rows: dict[str, Any] = {"value": ["a", "b" * 3_000, "c"]}
    rows |= {"headers": pa.array([[]] * 3, HEADERS)} if with_headers else {}
    made = open_one(message_max_bytes=2_000)
    with pytest.raises(KafkaException) as caught:
        made.send(pa.RecordBatch.from_pydict(rows), topic=topic)
    assert code_of(caught) == KafkaError.MSG_SIZE_TOO_LARGE
    made.abort_transaction(30)
    assert records(server("kafka").bootstrap, topic) == []


@pytest.mark.usefixtures("way")
def test_a_record_that_the_broker_refuses_fails_the_commit() -> None:
    """Nobody is told of a single record: all of them count, or none."""
    topic = server("kafka").topic(unique("small"), 1, max_message_bytes="1000")
    made = open_one()
    made.send(pa.RecordBatch.from_pydict({"value": ["a", "b" * 3_000]}), topic=topic)
    with pytest.raises(KafkaException):
        made.commit_transaction(30)
    made.abort_transaction(30)
    assert records(server("kafka").bootstrap, topic) == []


@pytest.mark.parametrize("with_headers", [True, False])
@pytest.mark.usefixtures("way")
def test_nothing_is_sent_outside_of_a_transaction(topic: str, *, with_headers: bool) -> None:
    rows: dict[str, Any] = {"value": ["a"]} | ({"headers": pa.array([[]], HEADERS)} if with_headers else {})
    made = producer()
    made.init_transactions(30)
    with pytest.raises(KafkaException) as caught:
        made.send(pa.RecordBatch.from_pydict(rows), topic=topic)
    assert code_of(caught) == KafkaError._STATE


@pytest.mark.usefixtures("way")
def test_who_is_fenced_is_told_so_at_the_commit_and_for_ever(topic: str) -> None:
    name = unique("lane")
    clients = Clients(server("kafka").bootstrap, {})
    older, newer = (clients.transactional_producer(transactional_id=name) for _ in range(2))
    older.init_transactions(30)
    older.begin_transaction()
    newer.init_transactions(30)
    older.send(pa.RecordBatch.from_pydict({"value": ["a"]}), topic=topic)
    with pytest.raises(KafkaException) as caught:
        older.commit_transaction(30)
    assert code_of(caught) in {KafkaError._FENCED, KafkaError._FATAL, KafkaError.PRODUCER_FENCED}
    assert caught.value.args[0].fatal()
    with pytest.raises(KafkaException) as again:
        older.send(pa.RecordBatch.from_pydict({"value": ["a"]}), topic=topic)
    assert code_of(again) == KafkaError._FATAL
    assert records(server("kafka").bootstrap, topic) == []


@pytest.mark.parametrize(
    ("key", "value"), [("no.such", "1"), ("queue.buffering.max.ms", "soon"), ("transaction.timeout.ms", "-5")]
)
@pytest.mark.usefixtures("way")
def test_settings_that_the_client_refuses_are_told_as_by_the_client(key: str, value: str) -> None:
    with pytest.raises(KafkaException) as caught:
        Clients(NOWHERE, {key: value}).transactional_producer(transactional_id="a")
    assert code_of(caught) == KafkaError._INVALID_ARG
    assert key in caught.value.args[0].str()


@pytest.mark.usefixtures("way")
def test_settings_that_do_not_fit_together_are_told_as_by_the_client() -> None:
    with pytest.raises(KafkaException) as caught:
        Clients(NOWHERE, {"ssl.ca.location": "/no/such", "security.protocol": "ssl"}).transactional_producer(transactional_id="a")
    assert code_of(caught) == KafkaError._INVALID_ARG
    assert "ssl.ca.location" in caught.value.args[0].str()


@pytest.mark.usefixtures("way")
def test_a_question_that_nobody_answers_can_be_asked_again() -> None:
    made = producer(bootstrap=NOWHERE)
    with pytest.raises(KafkaException) as caught:
        made.init_transactions(1)
    assert code_of(caught) == KafkaError._TIMED_OUT
    assert caught.value.args[0].retriable()


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> "Iterator[Callable[[], str]]":
    logger = logging.getLogger("penstock.kafka")
    logger.addHandler(caplog.handler)
    with caplog.at_level(logging.DEBUG, "penstock.kafka"):
        yield lambda: "\n".join(line.getMessage() for line in caplog.records)
    logger.removeHandler(caplog.handler)


def test_what_a_client_says_beside_all_questions_is_heard_and_logged(logged: "Callable[[], str]") -> None:
    clients = Clients(NOWHERE, {"log_level": "7", "debug": "broker"})
    made = clients.transactional_producer(transactional_id="a")
    with pytest.raises(KafkaException):
        made.init_transactions(1)
    with pytest.raises(KafkaException):
        made.begin_transaction()
    said = clients.heard()
    assert said is not None
    assert said.code() == KafkaError._TRANSPORT
    assert NOWHERE in said.str()
    assert NOWHERE in logged()


@pytest.mark.usefixtures("way")
def test_what_a_client_logs_while_it_commits_is_not_printed(
    topic: str, logged: "Callable[[], str]", capfd: pytest.CaptureFixture[str]
) -> None:
    clients = Clients(server("kafka").bootstrap, {"log_level": "7", "debug": "eos"})
    made = clients.transactional_producer(transactional_id=unique("made"))
    made.init_transactions(30)
    made.begin_transaction()
    made.send(pa.RecordBatch.from_pydict({"value": ["a"]}), topic=topic)
    made.commit_transaction(30)
    made.begin_transaction()
    assert "commit" in logged().lower()
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("key", ["plugin.library.paths", "sasl.oauthbearer.metadata.authentication.type"])
def test_what_the_client_of_python_does_itself_is_left_to_it(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(making, "OneByOneProducer", lambda given: given)
    made: Any = Clients(NOWHERE, {key: "a"}).transactional_producer(transactional_id="a")
    assert made[key] == "a"


def test_an_older_client_is_handed_them_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would free the headers of a record that it refuses twice."""
    librdkafka.cache_clear()
    monkeypatch.setattr("penstock.sink.kafka.librdkafka.libversion", lambda: ("2.12.1", 0x020C01FF))
    assert librdkafka() is None
    librdkafka.cache_clear()


@pytest.mark.parametrize("with_headers", [True, False])
@pytest.mark.usefixtures("way")
def test_a_partition_that_is_gone_is_an_error(topic: str, *, with_headers: bool) -> None:
    """Of `send` where the producer knows the topic, which a new one may have heard of already; else of the commit."""
    rows: dict[str, Any] = {"value": ["a"], "partition": pa.array([99], pa.int32())}
    rows |= {"headers": pa.array([[{"key": "h", "value": b"1"}]], HEADERS)} if with_headers else {}
    unknown = open_one()
    with pytest.raises(KafkaException):
        _sent_and_committed(unknown, pa.RecordBatch.from_pydict(rows), topic)
    known = open_one()
    known.send(pa.RecordBatch.from_pydict({"value": ["a"]}), topic=topic)
    known.commit_transaction(30)
    known.begin_transaction()
    with pytest.raises(KafkaException) as caught:
        known.send(pa.RecordBatch.from_pydict(rows), topic=topic)
    assert code_of(caught) == KafkaError._UNKNOWN_PARTITION
    assert [one.value() for one in records(server("kafka").bootstrap, topic)] == [b"a"]


def _sent_and_committed(producer: Any, rows: "pa.RecordBatch", topic: str) -> None:
    producer.send(rows, topic=topic)
    producer.commit_transaction(30)


def test_a_process_ends_while_a_thread_of_it_waits_for_a_broker() -> None:
    """As Spark's callbacks do, in threads that nobody waits for."""
    script = f"""
import threading
from penstock.sink.kafka.clients import Clients
made = Clients({NOWHERE!r}, {{}}).transactional_producer(transactional_id="a")
begun = threading.Event()
def wait():
    begun.set()
    made.init_transactions(30)
threading.Thread(target=wait, daemon=True).start()
begun.wait()
threading.Event().wait(0.2)
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.fixture
def threads() -> "Callable[[], int]":
    def count() -> int:
        gc.collect()
        with open("/proc/self/status", encoding="ascii") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("Threads:"))

    return count


@pytest.mark.usefixtures("way")
def test_a_producer_ends_with_whoever_holds_it(topic: str, threads: "Callable[[], int]") -> None:
    before = threads()
    made = open_one()
    made.send(pa.RecordBatch.from_pydict({"value": ["a"]}), topic=topic)
    assert threads() > before
    made.let_go()
    del made
    assert threads() == before


@pytest.mark.usefixtures("way")
def test_a_producer_does_not_end_before_the_broker_has_what_was_sent(topic: str) -> None:
    """Ended while it adds a partition to the transaction, librdkafka aborts the process: its count of requests would be off."""
    made = open_one()
    made.send(pa.RecordBatch.from_pydict({"value": ["a"], "partition": pa.array([2], pa.int32())}), topic=topic)
    made.let_go()
    assert is_open(server("kafka").bootstrap, topic, 2)


@pytest.mark.usefixtures("way")
def test_an_error_that_is_kept_keeps_no_client_that_was_dropped(threads: "Callable[[], int]") -> None:
    before = threads()
    clients = Clients(NOWHERE, {})
    made = Transactions.__new__(Transactions)
    made._producer, made._began_s, made._is_committing = clients.transactional_producer(transactional_id="a"), None, False
    with pytest.raises(KafkaException) as kept:
        made._producer.init_transactions(0.1)
    made.drop()
    assert kept.value.args
    assert threads() == before


@pytest.mark.parametrize("kind", ["error", "lost"])
@pytest.mark.usefixtures("way", "topic")
def test_an_error_that_is_kept_keeps_no_client_that_could_not_fence_older_ones(threads: "Callable[[], int]", kind: str) -> None:
    """Going on with that, it would fence the next one."""
    clients, before = Clients(server("kafka").bootstrap, {}), threads()
    faults.arm(f"kafka.init={kind}")
    with pytest.raises(Retryable) as kept:
        Transactions(clients, name=unique("made"), timeout_ms=60_000, max_record_bytes=1_000_000)
    faults.arm("")
    assert kept.value.__cause__ is not None
    assert threads() == before


@pytest.mark.usefixtures("way")
def test_it_says_at_once_whether_anything_is_open(topic: str) -> None:
    """And not that nothing is where it does not know."""
    clients = Clients(server("kafka").bootstrap, {})
    made = Transactions(clients, name=unique("made"), timeout_ms=60_000, max_record_bytes=1_000_000)
    places = [TopicPartition(topic, partition) for partition in range(3)]
    assert made.are_settled(places)
    made.begin()
    made.send(pa.RecordBatch.from_pydict({"value": ["a"], "partition": pa.array([2], pa.int32())}), topic=topic)
    while not is_open(server("kafka").bootstrap, topic, 2):
        assert made.are_settled(places[:2])
    assert not made.are_settled(places)
    made.commit()
    await_settled(server("kafka").bootstrap, topic, 3)
    assert made.are_settled(places)


def test_it_does_not_say_that_nothing_is_open_where_nobody_answers(topic: str) -> None:
    made = open_one()
    assert isinstance(made, ColumnarProducer)
    for place in (TopicPartition(topic, 3), TopicPartition(unique("nowhere"), 0)):
        assert not made.are_settled([place])
