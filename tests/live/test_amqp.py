"""The receiver as a consumer of a real RabbitMQ; both are killed."""

import random
import re
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from pika import BasicProperties, BlockingConnection, ConnectionParameters, PlainCredentials
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import AMQPError
from tests.architecture.reading import ROOT
from tests.live.receiver import Receiver
from tests.seed import SEED
from tests.servers.fixtures import server, unique
from tests.servers.rabbitmq import PASSWORD, USER, RabbitMQ

from penstock.journal.event import Event
from penstock.journal.reading import JournalReader
from penstock.journal.storage import LocalStorage

WAIT_S = 60
LOGIN = {"AMQP_PASSWORD": PASSWORD}


@pytest.fixture
def broker() -> RabbitMQ:
    found: RabbitMQ = server("rabbitmq")
    return found


@contextmanager
def publisher(broker: RabbitMQ, queue: str) -> Iterator[BlockingChannel]:
    """A channel that awaits the broker's confirmation of each message. The queue is durable."""
    login = PlainCredentials(USER, PASSWORD)
    connection = BlockingConnection(ConnectionParameters("127.0.0.1", broker.port, credentials=login))
    try:
        channel = connection.channel()
        channel.queue_declare(queue, durable=True)
        channel.confirm_delivery()
        yield channel
    finally:
        with suppress(AMQPError):
            connection.close()


def publish(channel: BlockingChannel, queue: str, body: bytes, **more: object) -> None:
    channel.basic_publish("", queue, body, BasicProperties(delivery_mode=2, **more))


@pytest.fixture
def queue(broker: RabbitMQ) -> str:
    name = unique("amqp")
    with publisher(broker, name):
        return name


def settings(broker: RabbitMQ, queue: str, more: str = "") -> str:
    login = f"user: {USER}, password: '${{AMQP_PASSWORD}}'"
    return f"amqp: {{broker: '127.0.0.1:{broker.port}', queue: {queue}, {login}{more}}}"


def events(directory: Path, *, last: bytes) -> list[Event]:
    """The journal's events once it has that value."""
    reader, deadline = JournalReader(LocalStorage(), directory / "journal"), time.monotonic() + WAIT_S
    while True:
        if (extent := reader.extent()) is not None:
            found = [each.event for each in reader.read(extent.first, extent.next, journal_id=extent.journal_id)]
            if any(event.value == last for event in found):
                return found
        assert time.monotonic() < deadline
        threading.Event().wait(0.02)


def test_a_message_has_its_properties_and_tls_asks_for_the_login(tmp_path: Path, broker: RabbitMQ, queue: str) -> None:
    page = (ROOT / "docs" / "howto" / "push.md").read_text()
    [shown] = re.findall(r"^receive:\n  journal: .*\n  (amqp:\n(?:    .*\n)+)", page, re.MULTILINE)
    untrusted = shown.replace("broker.example:5671", f"localhost:{broker.tls_port}").replace("queue: clicks", f"queue: {queue}")
    trusted = untrusted.replace("tls: {}", f"tls: {{ca_file: {broker.authority}}}")
    for wrong, password, message in (
        (trusted, "another", "refused the connection: .*ACCESS_REFUSED"),
        (untrusted, PASSWORD, "refused the connection: .*certificate verify failed"),
        (trusted.replace(queue, f"{queue}-2"), PASSWORD, f"does not let the queue '{queue}-2' be read: NOT_FOUND"),
        (
            trusted.replace("    queue:", "    virtual_host: none\n    queue:"),
            PASSWORD,
            "refused the connection: .*vhost none not found",
        ),
    ):
        with pytest.raises(AssertionError, match=message):
            Receiver(tmp_path, wrong, environment={"AMQP_PASSWORD": password}).kill()
    started = Receiver(tmp_path, trusted, environment=LOGIN)
    with publisher(broker, queue) as channel:
        publish(channel, queue, b"\x00 one", message_id="m1", content_type="text/plain", headers={"room": "é"})
        publish(channel, queue, b"one again", message_id="m1")
        publish(channel, queue, b"two")
    first, second = events(tmp_path, last=b"two")
    where = [("queue", queue.encode()), ("exchange", b""), ("routing_key", queue.encode()), ("redelivered", b"0")]
    more = [("content_type", b"text/plain"), ("delivery_mode", b"2"), ("message_id", b"m1"), ("header.room", "é".encode())]
    assert first.value == b"\x00 one"
    assert list(first.headers) == [*where, *more]
    assert second.value == b"two"
    assert started.stop() == 0


def test_what_is_not_durable_is_delivered_again(tmp_path: Path, broker: RabbitMQ, queue: str) -> None:
    slow = f"{settings(broker, queue)}\n  linger: 300ms"
    failing = Receiver(tmp_path, slow, environment={**LOGIN, "PENSTOCK_FAULTS": "journal.write=kill"})
    with publisher(broker, queue) as channel:
        publish(channel, queue, b"fails")
        assert failing.wait()[0] == -signal.SIGKILL
        publish(channel, queue, b"away")
        started = Receiver(tmp_path, settings(broker, queue), environment=LOGIN)
        publish(channel, queue, b"last")
    found = events(tmp_path, last=b"last")
    assert [event.value for event in found] == [b"fails", b"away", b"last"]
    # Whether b"away" is one depends on when the broker notices that the killed receiver is gone.
    assert [dict(event.headers)["redelivered"] for event in (found[0], found[2])] == [b"1", b"0"]
    assert started.stop() == 0
    with publisher(broker, queue) as channel:
        assert channel.queue_declare(queue, passive=True).method.message_count == 0, "everything was acknowledged"


def publish_all(broker: RabbitMQ, queue: str, until: int, done: threading.Event) -> None:
    """Publish every number until it is confirmed: even ones numbered by a producer, odd ones with an id."""
    number = 0
    while number < until:
        with suppress(AMQPError, OSError), publisher(broker, queue) as channel:
            while number < until:
                half = 1 + number // 2
                numbered = {"headers": {"penstock-producer": "p", "penstock-sequence": half}}
                publish(channel, queue, b"%d" % number, **({"message_id": f"m{half}"} if number % 2 else numbered))
                number += 1
    done.set()


def test_each_confirmed_message_is_there_once_though_broker_and_receiver_are_killed(
    tmp_path: Path, broker: RabbitMQ, queue: str
) -> None:
    """Once the receiver is started while the broker is away. The publisher sends again what was not confirmed."""
    generator, until, published = random.Random(SEED), 400, threading.Event()
    unique_ids = settings(broker, queue, ", unique_message_ids: true, prefetch: 20")
    started = Receiver(tmp_path, unique_ids, environment=LOGIN)
    publishing = threading.Thread(target=publish_all, args=(broker, queue, until, published))
    publishing.start()
    for is_broker_away in (False, True):
        published.wait(generator.uniform(0.02, 0.3))
        if is_broker_away:
            broker.kill()
        started.kill()
        started = Receiver(tmp_path, unique_ids, environment=LOGIN)
        if not is_broker_away:
            published.wait(generator.uniform(0.02, 0.3))
            broker.kill()
        broker.start()
    publishing.join(120)
    assert published.is_set()
    with publisher(broker, queue) as channel:
        publish(channel, queue, b"last")
    found = [event.value for event in events(tmp_path, last=b"last")]
    assert Counter(found) == Counter([b"last", *(b"%d" % number for number in range(until))]), f"PENSTOCK_SEED={SEED}"
    assert started.stop() == 0
