"""The receiver as a subscriber of a real Mosquitto; both are killed."""

import os
import random
import re
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from tests.architecture.reading import ROOT
from tests.live.receiver import Receiver
from tests.seed import SEED
from tests.servers.fixtures import server, unique
from tests.servers.mosquitto import PASSWORD, Mosquitto

from penstock.journal.event import Event
from penstock.journal.reading import JournalReader
from penstock.journal.storage import LocalStorage

WAIT_S = 30
KILLS = int(os.environ.get("PENSTOCK_SOAK_KILLS", "2"))


@pytest.fixture
def broker() -> Mosquitto:
    found: Mosquitto = server("mosquitto")
    return found


@pytest.fixture
def client_id() -> str:
    """A session of the test's own; it is the first level of its topics, too."""
    return unique("mqtt")


def settings(broker: Mosquitto, client_id: str) -> str:
    return f"mqtt: {{broker: 127.0.0.1:{broker.port}, topics: ['{client_id}/#'], client_id: {client_id}}}"


@contextmanager
def publisher(broker: Mosquitto) -> Iterator[Client]:
    client = Client(CallbackAPIVersion.VERSION2, protocol=MQTTProtocolVersion.MQTTv5)
    client.connect("127.0.0.1", broker.port)
    client.loop_start()
    try:
        yield client
    finally:
        client.disconnect()
        client.loop_stop()


def publish(client: Client, topic: str, value: bytes, *, qos: int = 1, **more: Any) -> None:
    """Publish and await the broker's acknowledgement."""
    sent = client.publish(topic, value, qos=qos, **more)
    sent.wait_for_publish(WAIT_S)
    assert sent.is_published()


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


def test_a_message_has_its_topic_and_properties_and_tls_asks_for_the_login(
    tmp_path: Path, broker: Mosquitto, client_id: str
) -> None:
    page = (ROOT / "docs" / "howto" / "push.md").read_text()
    [shown] = re.findall(r"^receive:\n  journal: .*\n  (mqtt:\n(?:    .*\n)+)", page, re.MULTILINE)
    untrusted = shown.replace("broker.example:8883", f"localhost:{broker.tls_port}").replace("sensors", client_id)
    tls = untrusted.replace("tls: {}", f"tls: {{ca_file: {broker.authority}}}")
    with pytest.raises(AssertionError, match="refused the connection: Not authorized"):
        Receiver(tmp_path, tls, environment={"MQTT_PASSWORD": "another"}).kill()
    with pytest.raises(AssertionError, match=r"cannot be reached: .*certificate verify failed"):
        Receiver(tmp_path, untrusted, environment={"MQTT_PASSWORD": PASSWORD}).kill()
    properties = Properties(PacketTypes.PUBLISH)
    properties.ContentType, properties.CorrelationData = "text/plain", b"\x00\xff"
    properties.UserProperty = [("room", "é"), ("room", "2")]
    started = Receiver(tmp_path, tls, environment={"MQTT_PASSWORD": PASSWORD})
    with publisher(broker) as client:
        publish(client, f"{client_id}/a/state", b"\x00 one", qos=2, properties=properties)
        publish(client, f"{client_id}/b/state", b"two", qos=0, retain=True)
    first, second = events(tmp_path, last=b"two")
    topic = ("topic", f"{client_id}/a/state".encode())
    more = [("content_type", b"text/plain"), ("correlation_data", b"\x00\xff")]
    named = [("property.room", "é".encode()), ("property.room", b"2")]
    packet_id = ("packet_id", dict(first.headers)["packet_id"])
    assert first.value == b"\x00 one"
    assert list(first.headers) == [topic, ("qos", b"2"), ("retain", b"0"), ("dup", b"0"), packet_id, *more, *named]
    assert dict(second.headers)["retain"] == b"1"
    assert first.remote == f"localhost:{broker.tls_port}"
    assert started.stop() == 0


def test_what_is_not_durable_or_comes_while_nobody_is_there_is_delivered_later(
    tmp_path: Path, broker: Mosquitto, client_id: str
) -> None:
    slow = f"{settings(broker, client_id)}\n  linger: 300ms"
    failing = Receiver(tmp_path, slow, environment={"PENSTOCK_FAULTS": "journal.write=kill"})
    with publisher(broker) as client:
        publish(client, f"{client_id}/a", b"fails", qos=2, retain=True)
        assert failing.wait()[0] == -signal.SIGKILL
        publish(client, f"{client_id}/a", b"away")
        started = Receiver(tmp_path, settings(broker, client_id))
        publish(client, f"{client_id}/a", b"last")
    found = events(tmp_path, last=b"last")
    assert [event.value for event in found] == [b"fails", b"away", b"last"], "nor is a retained message sent again"
    assert started.stop() == 0


def test_messages_that_were_acknowledged_are_in_the_journal_though_broker_and_receiver_are_killed(
    tmp_path: Path, broker: Mosquitto, client_id: str
) -> None:
    """Once the receiver is started while the broker is away.

    Mosquitto answers a message before it has written it, and has written it when it answers the next one. So a message counts
    as acknowledged once another one is; one during which the broker was killed is published again.
    """
    generator, until, kills, published = random.Random(SEED), 150, [0], threading.Event()

    def publish_all() -> None:
        with publisher(broker) as client:
            for number in range(until):
                before = None
                while before != kills[0]:
                    before = kills[0]
                    publish(client, f"{client_id}/n", b"%d" % number, qos=1 + number % 2)
                    publish(client, "proof", b"")
        published.set()

    publishing = threading.Thread(target=publish_all)
    started = Receiver(tmp_path, settings(broker, client_id))
    publishing.start()
    for is_broker_away in (False, True):
        published.wait(generator.uniform(0.02, 0.3))
        if is_broker_away:
            kills[0] += 1
            broker.kill()
        started.kill()
        started = Receiver(tmp_path, settings(broker, client_id))
        if not is_broker_away:
            published.wait(generator.uniform(0.02, 0.3))
            kills[0] += 1
            broker.kill()
        broker.start()
    publishing.join(120)
    assert published.is_set()
    with publisher(broker) as client:
        publish(client, f"{client_id}/n", b"last")
    found = [event.value for event in events(tmp_path, last=b"last")]
    assert set(found) == {b"last", *(b"%d" % number for number in range(until))}, f"PENSTOCK_SEED={SEED}"
    assert started.stop() == 0


STEPS = ("journal.write=torn@2", "journal.sync=kill@2", "journal.note=kill@2", "mqtt.note=kill@2", "mqtt.note=kill@4")
"""Before a message is durable, before the broker has our PUBREC, and before it has our PUBCOMP."""


def await_kill(directory: Path, more: str, step: str) -> None:
    """Run a receiver that is killed at `step`, maybe before it says that it is ready."""
    with pytest.raises(AssertionError, match=rf"\({-signal.SIGKILL}, ''\)"):
        raise AssertionError(Receiver(directory, more, environment={"PENSTOCK_FAULTS": step}).wait())


@pytest.mark.campaign
def test_a_message_of_qos_2_is_there_once_though_the_receiver_is_killed(
    tmp_path: Path, broker: Mosquitto, client_id: str
) -> None:
    """At each step, and then PENSTOCK_SOAK_KILLS times at random moments."""
    generator, ends, published = random.Random(SEED), threading.Event(), list[bytes]()
    more = f"{settings(broker, client_id)}\n  segment_size: 20kB"

    def publish_all() -> None:
        with publisher(broker) as client:
            while not ends.is_set():
                texts = [b"%d" % (len(published) + number) for number in range(generator.randint(1, 20))]
                for sent in [client.publish(f"{client_id}/n", text, qos=2) for text in texts]:
                    sent.wait_for_publish(WAIT_S)
                    assert sent.is_published()
                published.extend(texts)
            publish(client, f"{client_id}/n", b"last", qos=2)

    Receiver(tmp_path, more).kill()  # the session is there
    publishing = threading.Thread(target=publish_all)
    publishing.start()
    for step in STEPS:
        await_kill(tmp_path, more, step)
    for _ in range(KILLS):
        started = Receiver(tmp_path, more)
        ends.wait(generator.uniform(0, 0.4))
        started.kill()
    ends.set()
    publishing.join(WAIT_S)
    started = Receiver(tmp_path, more)
    found = Counter(event.value for event in events(tmp_path, last=b"last"))
    print(f"PENSTOCK_SEED={SEED}: {len(STEPS) + KILLS + 1} kills, {len(published)} messages")
    assert found == Counter([*published, b"last"]), f"PENSTOCK_SEED={SEED}"
    assert started.stop() == 0


def test_with_qos_1_it_is_lowered(tmp_path: Path, broker: Mosquitto, client_id: str) -> None:
    started = Receiver(tmp_path, settings(broker, client_id).replace("{broker", "{qos: 1, broker"))
    with publisher(broker) as client:
        publish(client, f"{client_id}/n", b"last", qos=2)
    [event] = events(tmp_path, last=b"last")
    assert dict(event.headers)["qos"] == b"1"
    assert started.stop() == 0


def test_a_broker_that_would_not_deliver_again_is_refused(tmp_path: Path, broker: Mosquitto, client_id: str) -> None:
    weak = settings(broker, client_id).replace(str(broker.port), str(broker.weak_port))
    with pytest.raises(AssertionError, match=f"does not let '{client_id}/#' be subscribed to with QoS 1: Granted QoS 0"):
        Receiver(tmp_path, weak).kill()
