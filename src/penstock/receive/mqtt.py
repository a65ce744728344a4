"""A subscriber of an MQTT 5 broker, by paho-mqtt. A message is acknowledged once it is durable in the journal.

What was not acknowledged when the connection ended comes again. Of that, messages of QoS 2 are recognised by `PacketIds`, and
messages with a producer's number by the journal.
"""

import asyncio
import logging
import math
import ssl
import sys
import threading
import time
from collections.abc import Callable
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple

from paho.mqtt.client import Client, ConnectFlags, DisconnectFlags, MQTTMessage
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from penstock.errors import PenstockError, Usage
from penstock.journal.event import Event
from penstock.journal.group import GroupWriter, Receipts
from penstock.receive.client_tls import client_context
from penstock.receive.mqtt_client import ManualClient
from penstock.receive.packet_ids import HEADER, PacketIds, Unreleased
from penstock.receive.rate import RateLimit
from penstock.receive.request import numbering_in
from penstock.receive.storing import next_group, stored
from penstock.spec.receive import MqttSubscription
from penstock.support.listening import host_and_port

_log = logging.getLogger(__name__)
_LEAST, _EXACT = 1, 2
"""The QoS by which a broker delivers again what was not acknowledged, and that by which it delivers exactly once."""
_AGAIN_S = 0.5
_UNACKNOWLEDGED = 1_000
"""Messages that the broker sends ahead of acknowledgements."""
_WAITING = 10_000
"""Messages of QoS 0 that wait; more are dropped, since nothing slows their broker down."""
_LONGEST_PAUSE_S = 60
_PASSING = frozenset({0x88, 0x89, 0x97, 0x9F})
"""Reasons of a refusal that go away: unavailable, busy, quota, rate."""
_PROPERTIES = {
    "ContentType": "content_type",
    "ResponseTopic": "response_topic",
    "CorrelationData": "correlation_data",
    "PayloadFormatIndicator": "payload_format",
    "MessageExpiryInterval": "message_expiry",
}


class _Arrived(NamedTuple):
    """A message; without one it says that the broker begins a new session with the connection."""

    message: MQTTMessage | None
    event: Event
    connection: int

    @property
    def packet_id(self) -> int | None:
        """That of a message of QoS 2."""
        return self.message.mid if self.message is not None and self.message.qos == _EXACT else None


class _Released(NamedTuple):
    packet_id: int
    connection: int


class MqttReceiver:
    """Subscribes while it is started. A connection that ends is made again, 1 to 60 seconds later, with the broker's session.

    paho calls from a thread of its own; messages are handed to the event loop. `_connection` counts connections: what came by
    one that has ended is not acknowledged, since its packet number can belong to another message now. `save` makes the note of
    `packet_ids` durable, and raises OSError; it is called in another thread.
    """

    def __init__(
        self, settings: MqttSubscription, writer: GroupWriter, packet_ids: PacketIds, *, save: Callable[[Unreleased], None]
    ) -> None:
        self._settings, self._writer, self._packet_ids, self._save = settings, writer, packet_ids, save
        self._rate = RateLimit(settings.max_rate or math.inf, now_s=time.monotonic)
        self._lock, self._connection, self._is_stopping = threading.Lock(), 0, False
        self._has_subscribed, self._qos = False, int(settings.qos)
        self._arrived: asyncio.Queue[_Arrived] = asyncio.Queue()
        self._released: list[_Released] = []
        self._changed, self._saving = asyncio.Event(), asyncio.Lock()
        self._keeping: asyncio.Task[None] | None = None
        self._working: asyncio.Task[None] | None = None
        self._noting: asyncio.Task[None] | None = None
        self._client = _client(settings, on_release=self._release)

    async def start(self) -> str:
        """Subscribe; return the broker's address. One that is not there now is tried again later. Raises Usage if it refuses."""
        self._loop = asyncio.get_running_loop()
        await asyncio.to_thread(self._save, self._packet_ids.note)
        self._first: asyncio.Future[PenstockError | None] = self._loop.create_future()
        self._client.on_connect, self._client.on_connect_fail = self._connected, self._not_connected
        self._client.on_disconnect, self._client.on_subscribe = self._disconnected, self._subscribed
        self._client.on_message = self._received
        host, port = host_and_port(self._settings.broker)
        self._client.connect_async(host, port, clean_start=False, properties=_session(self._settings))
        self._client.loop_start()
        self._working, self._noting = asyncio.create_task(self._work()), asyncio.create_task(self._note())
        if (error := await self._first) is not None:
            raise error
        return self._settings.broker

    async def stop(self) -> None:
        """Take no more messages, and acknowledge those that are being made durable. The session stays at the broker."""
        self._is_stopping = True
        if self._working is not None:
            self._working.cancel()
            if self._keeping is not None:
                await self._keeping
            if self._noting is not None:
                self._noting.cancel()
            self._client.disable_logger()  # of the connection that ends now
            self._client.disconnect()
            await asyncio.to_thread(self._client.loop_stop)

    # --- the event loop

    async def _work(self) -> None:
        """Keep what has arrived, a group at a time: what waits for room keeps what is behind it waiting."""
        while True:
            arrived = await next_group(self._arrived, self._rate)
            for connection, group in groupby(arrived, key=attrgetter("connection")):
                self._keeping = asyncio.create_task(self._keep(list(group), connection))
                await asyncio.shield(self._keeping)  # a stop lets it end

    async def _keep(self, arrived: list[_Arrived], connection: int) -> None:
        """Make messages durable, and acknowledge each then. Given up when their connection has ended: they will come again."""
        if any(each.message is None for each in arrived):
            self._packet_ids.forget()
            await self._save_note()
        is_over = connection != self._connection
        arrived = [each for each in arrived if each.message is not None and not (is_over and each.message.qos)]
        self._acknowledge([each for each in arrived if each.packet_id in self._packet_ids], connection)
        arrived = [each for each in arrived if each.packet_id not in self._packet_ids]
        while arrived:
            try:
                async for receipts in stored(
                    [each.event for each in arrived],
                    self._writer,
                    gives_up=lambda: self._is_stopping or connection != self._connection,
                ):
                    self._count_durable(arrived, receipts)
                    self._acknowledge(arrived[: len(receipts)], connection)
                    arrived = arrived[len(receipts) :]
            except Usage as error:
                _log.warning("mqtt: a message of %s was not taken: %s", _topic_of(arrived[0]), error)
                arrived = arrived[1:]
            except PenstockError as error:
                _log.warning("mqtt: %d messages were not taken: %s", len(arrived), error)
                return

    def _count_durable(self, arrived: list[_Arrived], receipts: Receipts) -> None:
        """Also if the connection has ended: what comes again is a repeat now."""
        for each, receipt in zip(arrived, receipts, strict=False):
            if each.packet_id is not None and not receipt.is_repeat and receipt.sequence is not None:
                self._packet_ids.add(each.packet_id, receipt.sequence)
                self._changed.set()

    def _acknowledge(self, durable: list[_Arrived], connection: int) -> None:
        with self._lock:
            if connection != self._connection:
                return
            for each in durable:
                if each.packet_id is not None:
                    self._client.send_pubrec(each.packet_id)
                elif each.message is not None:
                    self._client.ack(each.message.mid, each.message.qos)

    async def _note(self) -> None:
        """Save what the broker released, and what is in the journal, again and again; only then is a release answered."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            released, self._released = self._released, []
            now = [each for each in released if each.connection == self._connection]  # others are sent again
            for each in now:
                self._packet_ids.release(each.packet_id)
            await self._save_note()
            with self._lock:
                for each in now:
                    if each.connection == self._connection:
                        self._client.ack(each.packet_id, _EXACT)

    async def _save_note(self) -> None:
        """Save the note as it is now, at the latest when there is room on the disk again."""
        note = self._packet_ids.note
        while True:
            try:
                async with self._saving:
                    return await asyncio.to_thread(self._save, note)
            except OSError as error:
                _log.warning("mqtt: the note of packet identifiers cannot be written: %s", error)
            await asyncio.sleep(_AGAIN_S)

    def _take_release(self, released: _Released) -> None:
        self._released.append(released)
        self._changed.set()

    def _settle(self, error: PenstockError | None) -> None:
        """End the start, if it has not ended; afterwards what is wrong is written to the log."""
        if not self._first.done():
            self._first.set_result(error)
        elif error is not None:
            _log.warning("mqtt: %s", error)

    # --- paho's thread

    def _received(self, _client: Client, _userdata: object, message: MQTTMessage) -> None:
        if message.qos == 0 and self._arrived.qsize() >= _WAITING:
            _log.warning("mqtt: a message of QoS 0 was dropped: %d wait", _WAITING)
        else:
            try:
                event = event_of(message, remote=self._settings.broker)
            except Usage as error:
                _log.warning("mqtt: a message of %s was not taken: %s", message.topic, error)
                return
            arrived = _Arrived(message, event, self._connection)
            self._loop.call_soon_threadsafe(self._arrived.put_nowait, arrived)

    def _release(self, packet_id: int) -> None:
        self._loop.call_soon_threadsafe(self._take_release, _Released(packet_id, self._connection))

    def _connected(
        self, client: Client, _userdata: object, flags: ConnectFlags, reason: ReasonCode, properties: Properties | None
    ) -> None:
        if reason.is_failure:
            self._refused(f"refused the connection: {reason}", is_passing=reason.value in _PASSING)
            return
        if not flags.session_present:
            begins = _Arrived(None, Event(value=b""), self._connection)
            self._loop.call_soon_threadsafe(self._arrived.put_nowait, begins)
        if self._has_subscribed and not flags.session_present:
            _log.warning("mqtt: the broker has lost the session %s, with what it had for it", self._settings.client_id)
        self._qos = max(_LEAST, min(int(self._settings.qos), getattr(properties, "MaximumQoS", _EXACT)))
        if self._qos < self._settings.qos:
            _log.warning("mqtt: the broker delivers at least once only: it allows QoS %d at most", self._qos)
        options = SubscribeOptions(qos=self._qos, retainAsPublished=True, retainHandling=SubscribeOptions.RETAIN_SEND_IF_NEW_SUB)
        client.subscribe([(topic, options) for topic in self._settings.topics])

    def _subscribed(
        self, _client: Client, _userdata: object, _mid: int, reasons: list[ReasonCode], _properties: Properties | None
    ) -> None:
        for topic, reason in zip(self._settings.topics, reasons, strict=True):
            if reason.value != self._qos:
                self._refused(f"does not let {topic!r} be subscribed to with QoS {self._qos}: {reason}", is_passing=False)
                return
        self._has_subscribed = True
        self._loop.call_soon_threadsafe(self._settle, None)

    def _refused(self, what: str, *, is_passing: bool) -> None:
        error = Usage(f"The broker {self._settings.broker} {what}.", remedy="Correct receive.mqtt, or what the broker allows.")
        if is_passing:
            _log.warning("mqtt: %s", error.message)
        self._loop.call_soon_threadsafe(self._settle, None if is_passing else error)

    def _not_connected(self, _client: Client, _userdata: object) -> None:
        cause = sys.exc_info()[1]  # paho calls while it handles it, and does not hand it over
        is_passing = not isinstance(cause, ssl.SSLError)
        self._refused(f"cannot be reached: {cause}", is_passing=is_passing)

    def _disconnected(
        self, _client: Client, _userdata: object, _flags: DisconnectFlags, reason: ReasonCode, _properties: Properties | None
    ) -> None:
        with self._lock:
            self._connection += 1
        if not self._is_stopping:
            _log.warning("mqtt: the connection to %s has ended, and is made again: %s", self._settings.broker, reason)


def event_of(message: MQTTMessage, *, remote: str) -> Event:
    """Return the event of a message: its payload, with topic, QoS, flags and properties as headers. Raises Usage."""
    flags = [("qos", message.qos), ("retain", int(message.retain)), ("dup", int(message.dup))]
    flags += [(HEADER, message.mid)] if message.qos == _EXACT else []
    headers = [("topic", message.topic.encode()), *((name, b"%d" % value) for name, value in flags)]
    properties = message.properties
    if properties is not None:
        given = [(header, getattr(properties, name, None)) for name, header in _PROPERTIES.items()]
        headers += [(header, _bytes(value)) for header, value in given if value is not None]
        headers += [(f"property.{name}", value.encode()) for name, value in getattr(properties, "UserProperty", ())]
    producer, number = numbering_in(dict(getattr(properties, "UserProperty", ())))
    value = bytes(message.payload)
    return Event(value=value, headers=tuple(headers), producer=producer, number=number, remote=remote)


def _bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


def _topic_of(arrived: _Arrived) -> str:
    return "" if arrived.message is None else str(arrived.message.topic)


def _client(settings: MqttSubscription, *, on_release: Callable[[int], None]) -> ManualClient:
    client = ManualClient(settings.client_id, on_release=on_release)
    client.reconnect_delay_set(1, _LONGEST_PAUSE_S)
    client.suppress_exceptions = True  # of these callbacks: they would end paho's thread; its logger shows them
    client.enable_logger(_log)
    if settings.user is not None:
        client.username_pw_set(settings.user, settings.password)
    if settings.tls is not None:
        client.tls_set_context(client_context(settings.tls, key="receive.mqtt.tls"))
    return client


def _session(settings: MqttSubscription) -> Properties:
    properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
    properties.SessionExpiryInterval = settings.session_expiry // 1000
    properties.ReceiveMaximum = _UNACKNOWLEDGED
    properties.MaximumPacketSize = settings.max_message
    return properties
