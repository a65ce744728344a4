"""What the receiver makes of messages of AMQP, and which of them it recognises when they come again."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pika import BasicProperties
from pika.spec import Basic

from penstock.errors import Usage
from penstock.journal.event import Event
from penstock.journal.group import GroupWriter
from penstock.journal.journal import Journal, JournalLimits
from penstock.journal.reading import JournalReader
from penstock.journal.storage import LocalStorage
from penstock.receive import amqp
from penstock.receive.amqp import AmqpReceiver, event_of
from penstock.receive.recent_ids import RecentIds, message_id_of, recent_ids
from penstock.spec.receive import AmqpQueue

BROKER = "127.0.0.1:5672"


def settings(**more: Any) -> AmqpQueue:
    return AmqpQueue(**{"broker": BROKER, "queue": "clicks", **more})


def message(body: bytes = b"v", *, redelivered: bool = False, **more: Any) -> tuple[Basic.Deliver, BasicProperties, bytes]:
    deliver = Basic.Deliver(delivery_tag=1, redelivered=redelivered, exchange="shop", routing_key="a.b")
    return deliver, BasicProperties(**more), body


def numbered(producer: object, number: object) -> dict[str, Any]:
    return {"headers": {"penstock-producer": producer, "penstock-sequence": number}}


def test_an_event_has_body_place_properties_and_headers() -> None:
    given = message(
        b"\x00", redelivered=True, content_type="text/plain", message_id="m1", headers={"room": "é", "n": 2, "b": b"\xff"}
    )
    event = event_of(*given, settings=settings())
    where = [("queue", b"clicks"), ("exchange", b"shop"), ("routing_key", b"a.b"), ("redelivered", b"1")]
    more = [("content_type", b"text/plain"), ("message_id", b"m1")]
    own = [("header.room", "é".encode()), ("header.n", b"2"), ("header.b", b"\xff")]
    assert (event.value, list(event.headers), event.remote) == (b"\x00", [*where, *more, *own], BROKER)
    assert (event.producer, event.number) == (None, None)


@pytest.mark.parametrize("number", [7, "7", b"7"], ids=["int", "text", "bytes"])
def test_publishers_number_by_headers(number: object) -> None:
    event = event_of(*message(**numbered("p", number)), settings=settings())
    assert (event.producer, event.number) == ("p", 7)


@pytest.mark.parametrize("headers", [numbered("p", "x"), numbered("p", -1), {"headers": {"penstock-sequence": 1}}], ids=str)
def test_a_wrong_number_is_refused(headers: dict[str, Any]) -> None:
    with pytest.raises(Usage):
        event_of(*message(**headers), settings=settings())


def test_the_window_of_ids_forgets_the_oldest() -> None:
    found = RecentIds(most=2)
    for each in (b"a", b"b", b"a", b"c"):
        found.add(each)
    assert [b"a" in found, b"b" in found, b"c" in found] == [True, False, True]


@dataclass
class Broker:
    """A channel that notes what is acknowledged, and what goes back."""

    acknowledged: list[int] = field(default_factory=list)
    returned: list[int] = field(default_factory=list)
    is_open: bool = True

    def basic_ack(self, tag: int) -> None:
        self.acknowledged.append(tag)

    def basic_nack(self, tag: int, *, requeue: bool) -> None:
        assert requeue
        self.returned.append(tag)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "journal"


@pytest.fixture
def writer(home: Path) -> Iterator[GroupWriter]:
    made = GroupWriter(lambda: Journal(home, now_us=lambda: 1, limits=JournalLimits(least_free_bytes=0)))
    yield made
    made.close()


@pytest.fixture
def consume(home: Path, writer: GroupWriter, monkeypatch: pytest.MonkeyPatch) -> "Consume":
    """Let a receiver of its own take messages as one group: their tags are 0, 1, 2."""
    monkeypatch.setattr(amqp, "_RETURNED_AFTER_S", 0.0)

    def consumed(messages: Sequence[tuple[Any, BasicProperties, bytes]], broker: Broker, **more: Any) -> None:
        async def run() -> None:
            given = settings(**more)
            recent = recent_ids(JournalReader(LocalStorage(), home), queue="clicks", remote=BROKER)
            receiver = AmqpReceiver(given, writer, recent if given.unique_message_ids else None)
            receiver._loop = asyncio.get_running_loop()
            arrived = []
            for tag, (deliver, properties, body) in enumerate(messages):
                event = event_of(deliver, properties, body, settings=given)
                arrived.append(amqp._Arrived(event, broker, tag, message_id_of(event)))
            await receiver._keep(arrived)
            await asyncio.sleep(0)
            await asyncio.sleep(0)

        asyncio.run(run())

    return consumed


Consume = Callable[..., None]


def content(home: Path) -> list[bytes]:
    reader = JournalReader(LocalStorage(), home)
    extent = reader.extent()
    assert extent is not None
    return [each.event.value for each in reader.read(extent.first, extent.next, journal_id=extent.journal_id)]


def test_messages_with_ids_of_their_own_are_recognised_after_a_restart(home: Path, consume: Consume) -> None:
    first, again = Broker(), Broker()
    consume([message(b"1", message_id="a"), message(b"2", message_id="b")], first, unique_message_ids=True)
    later = [message(b"1", message_id="a"), message(b"3", message_id="c"), message(b"3", message_id="c"), message(b"4")]
    consume(later, again, unique_message_ids=True)
    assert content(home) == [b"1", b"2", b"3", b"4"]
    assert (first.acknowledged, sorted(again.acknowledged), again.returned) == ([0, 1], [0, 1, 2, 3], [])


def test_an_id_that_is_no_text_is_recognised_after_a_restart(home: Path, consume: Consume) -> None:
    message_id = b"\xff\x00"  # pika leaves bytes as they are that are not UTF-8
    consume([message(b"1", message_id=message_id)], Broker(), unique_message_ids=True)
    again = Broker()
    consume([message(b"1", message_id=message_id), message(b"2", message_id="m2")], again, unique_message_ids=True)
    assert (content(home), sorted(again.acknowledged)) == ([b"1", b"2"], [0, 1])


def test_an_empty_id_is_no_id(home: Path, consume: Consume) -> None:
    consume([message(b"1", message_id=""), message(b"2", message_id="")], Broker(), unique_message_ids=True)
    consume([message(b"3", message_id="")], Broker(), unique_message_ids=True)
    assert content(home) == [b"1", b"2", b"3"]


def test_ids_mean_nothing_unless_they_are_said_to_be_unique(home: Path, consume: Consume) -> None:
    consume([message(b"1", message_id="a"), message(b"2", message_id="a")], Broker())
    assert content(home) == [b"1", b"2"]


def test_ids_of_other_queues_and_brokers_and_of_http_clients_are_others(home: Path, writer: GroupWriter) -> None:
    headers = (("message_id", b"a"), ("queue", b"clicks"))
    elsewhere = [
        Event(value=b"v", headers=headers, remote="127.0.0.1:50000"),
        Event(value=b"v", headers=(("message_id", b"b"), ("queue", b"other")), remote=BROKER),
        Event(value=b"v", headers=(("message_id", b"c"), ("queue", b"clicks")), remote=BROKER),
    ]
    writer.submit(elsewhere).result()
    found = recent_ids(JournalReader(LocalStorage(), home), queue="clicks", remote=BROKER)
    assert [each in found for each in (b"a", b"b", b"c")] == [False, False, True]
    assert b"c" not in recent_ids(JournalReader(LocalStorage(), home), queue="clicks", remote=BROKER, most=0)


def test_a_number_that_comes_again_is_a_repeat_and_a_gap_goes_back_to_the_queue(home: Path, consume: Consume) -> None:
    broker, again = Broker(), Broker()
    consume([message(b"1", **numbered("p", 1)), message(b"3", **numbered("p", 3)), message(b"x")], broker)
    assert (broker.acknowledged, broker.returned) == ([0, 2], [1])
    consume([message(b"%d" % number, **numbered("p", number)) for number in (1, 2, 3)], again)
    assert (again.acknowledged, again.returned) == ([0, 1, 2], [])
    assert content(home) == [b"1", b"x", b"2", b"3"]


def test_a_twin_of_a_message_that_was_not_taken_goes_back_too(home: Path, consume: Consume) -> None:
    broker = Broker()
    gap = message(b"3", message_id="a", **numbered("p", 3))
    consume([gap, gap, gap], broker, unique_message_ids=True)
    assert (broker.acknowledged, sorted(broker.returned)) == ([], [0, 1, 2])


def test_nothing_is_acknowledged_on_a_connection_that_has_ended(home: Path, consume: Consume) -> None:
    broker = Broker(is_open=False)
    consume([message(b"1", message_id="a")], broker, unique_message_ids=True)
    assert broker.acknowledged == []
    assert content(home) == [b"1"]
