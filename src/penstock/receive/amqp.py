"""A consumer of a queue of AMQP 0-9-1, as RabbitMQ has it, by pika. A message is acknowledged once it is durable in the journal.

What was not acknowledged when the connection ended comes again. Of that, messages with a producer's number are recognised by the
journal, and messages with ids of their own by `RecentIds`.
"""

import asyncio
import logging
import math
import re
import ssl
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from pika import BasicProperties, ConnectionParameters, PlainCredentials, SSLOptions
from pika.adapters.asyncio_connection import AsyncioConnection
from pika.channel import Channel
from pika.exceptions import AuthenticationError, ChannelClosedByBroker
from pika.spec import Basic

from penstock.errors import PenstockError, Usage
from penstock.journal.event import Event
from penstock.journal.group import GroupWriter
from penstock.receive.amqp_values import read_values_exactly
from penstock.receive.client_tls import client_context
from penstock.receive.rate import RateLimit
from penstock.receive.recent_ids import ID_HEADER, RecentIds, message_id_of
from penstock.receive.request import numbering_in
from penstock.receive.storing import next_group, stored
from penstock.spec.receive import AmqpQueue
from penstock.support.listening import host_and_port

_log = logging.getLogger(__name__)
_HEARTBEAT_S = 30
_LONGEST_PAUSE_S = 60
_RETURNED_AFTER_S = 10.0
_STOP_S = 10.0
_REFUSED = re.compile(r"\((?:402|403|530)\)")
"""Codes by which a broker closes a connection that it would close again: a wrong login, or no such virtual host. As pika prints
them: it wraps that answer, and a connection that breaks at the same moment, in one class of exception.
"""
_PROPERTIES = (
    *("content_type", "content_encoding", "delivery_mode", "priority", "correlation_id", "reply_to", "expiration", ID_HEADER),
    *("timestamp", "type", "user_id", "app_id"),
)


class _Arrived(NamedTuple):
    event: Event
    channel: Channel
    tag: int
    message_id: bytes | None


class AmqpReceiver:
    """Consumes while it is started. A connection that ends is made again, 1 to 60 seconds later."""

    def __init__(self, settings: AmqpQueue, writer: GroupWriter, recent: RecentIds | None) -> None:
        self._settings, self._writer, self._recent = settings, writer, recent
        self._rate = RateLimit(settings.max_rate or math.inf, now_s=time.monotonic)
        self._parameters = _parameters(settings)
        self._arrived: asyncio.Queue[_Arrived] = asyncio.Queue()
        self._connection: AsyncioConnection | None = None
        self._pause_s, self._is_stopping = 1.0, False
        self._refused_messages, self._warns_at_s = 0, 0.0
        self._again: asyncio.TimerHandle | None = None
        self._keeping: asyncio.Task[None] | None = None
        self._working: asyncio.Task[None] | None = None

    async def start(self) -> str:
        """Consume; return the broker's address. One that is not there now is tried again later. Raises Usage if it refuses."""
        logging.getLogger("pika").setLevel(logging.CRITICAL)  # it logs each step; what matters is logged here
        read_values_exactly()
        self._loop = asyncio.get_running_loop()
        self._first: asyncio.Future[PenstockError | None] = self._loop.create_future()
        self._gone = asyncio.Event()
        self._working = asyncio.create_task(self._work())
        self._connect()
        if (error := await self._first) is not None:
            raise error
        return self._settings.broker

    async def stop(self) -> None:
        """Take no more messages, and acknowledge those that are being made durable. The others stay in the queue."""
        self._is_stopping = True
        if self._again is not None:
            self._again.cancel()
        if self._working is None:
            return
        self._working.cancel()
        if self._keeping is not None:
            await self._keeping
        if self._connection is not None and not (self._connection.is_closing or self._connection.is_closed):
            self._connection.close()
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._gone.wait(), _STOP_S)

    # --- messages

    def _received(self, channel: Channel, deliver: Basic.Deliver, properties: BasicProperties, body: bytes) -> None:
        try:
            event = event_of(deliver, properties, body, settings=self._settings)
        except Usage as error:
            self._refuse([_Arrived(Event(value=b""), channel, deliver.delivery_tag, None)], error)
            return
        self._arrived.put_nowait(_Arrived(event, channel, deliver.delivery_tag, message_id_of(event)))

    async def _work(self) -> None:
        """Keep what has arrived, a group at a time: what waits for room keeps what is behind it waiting."""
        while True:
            arrived = await next_group(self._arrived, self._rate)
            self._keeping = asyncio.create_task(self._keep([each for each in arrived if each.channel.is_open]))
            await asyncio.shield(self._keeping)  # a stop lets it end

    async def _keep(self, arrived: Sequence[_Arrived]) -> None:
        """Make durable what is not yet, and acknowledge all of it."""
        new, known = self._judged(arrived)
        await self._store(new)
        for each in known:
            if self._is_recent(each):
                self._acknowledge([each])
            else:
                self._return([each])  # its twin in `new` was not taken

    def _judged(self, arrived: Sequence[_Arrived]) -> tuple[list[_Arrived], list[_Arrived]]:
        """Return what is new, and what comes again by its id, be its twin durable or among the new ones."""
        if self._recent is None:
            return list(arrived), []
        new, known, ids = list[_Arrived](), list[_Arrived](), set[bytes]()
        for each in arrived:
            (known if self._is_recent(each) or each.message_id in ids else new).append(each)
            if each.message_id is not None:
                ids.add(each.message_id)
        return new, known

    def _is_recent(self, arrived: _Arrived) -> bool:
        return self._recent is not None and arrived.message_id is not None and arrived.message_id in self._recent

    async def _store(self, arrived: list[_Arrived]) -> None:
        """Make messages durable, and acknowledge each then. Given up when their connection has ended: they will come again."""
        while arrived:
            channel = arrived[0].channel
            try:
                async for receipts in stored(
                    [each.event for each in arrived],
                    self._writer,
                    gives_up=lambda channel=channel: self._is_stopping or not channel.is_open,  # type: ignore[misc]
                ):
                    self._acknowledge(arrived[: len(receipts)])
                    arrived = arrived[len(receipts) :]
            except Usage as error:
                self._refuse(arrived[:1], error)
                arrived = arrived[1:]
            except PenstockError as error:
                _log.warning("amqp: %d messages were not taken: %s", len(arrived), error)
                return

    def _acknowledge(self, durable: Sequence[_Arrived]) -> None:
        for each in durable:
            if self._recent is not None and each.message_id is not None:
                self._recent.add(each.message_id)
            if each.channel.is_open:
                each.channel.basic_ack(each.tag)

    def _refuse(self, arrived: Sequence[_Arrived], error: Usage) -> None:
        self._refused_messages += len(arrived)
        if self._loop.time() >= self._warns_at_s:
            self._warns_at_s = self._loop.time() + _RETURNED_AFTER_S
            text = "amqp: %d messages of %s were not taken, and go back to the queue. The last one: %s"
            _log.warning(text, self._refused_messages, self._settings.queue, error)
            self._refused_messages = 0
        self._return(arrived)

    def _return(self, arrived: Sequence[_Arrived]) -> None:
        """Give messages back to the queue, a while later: they come again, unless the queue has a rule for such."""
        for each in arrived:
            self._loop.call_later(_RETURNED_AFTER_S, _give_back, each)

    # --- the connection

    def _connect(self) -> None:
        self._connection = AsyncioConnection(
            self._parameters,
            on_open_callback=lambda connection: connection.channel(on_open_callback=self._channel_opened),
            on_open_error_callback=self._not_opened,
            on_close_callback=self._closed,
            custom_ioloop=self._loop,
        )

    def _channel_opened(self, channel: Channel) -> None:
        channel.add_on_close_callback(self._channel_closed)
        channel.add_on_cancel_callback(lambda _: channel.close())  # the queue was deleted, or its node went away
        channel.basic_qos(prefetch_count=self._settings.prefetch)
        channel.queue_declare(self._settings.queue, passive=True, callback=lambda _: self._consume(channel))

    def _consume(self, channel: Channel) -> None:
        channel.basic_consume(self._settings.queue, self._received, callback=lambda _: self._consuming())

    def _consuming(self) -> None:
        self._pause_s = 1.0
        self._settle(None)

    def _channel_closed(self, channel: Channel, reason: Exception) -> None:
        if isinstance(reason, ChannelClosedByBroker):
            self._refused(f"does not let the queue {self._settings.queue!r} be read: {reason.reply_text}")
        if channel.connection.is_open:
            channel.connection.close()

    def _not_opened(self, _: object, error: BaseException) -> None:
        if self._is_stopping:
            self._gone.set()
            return
        cause = _cause_of(error)
        if isinstance(cause, ssl.SSLError | AuthenticationError) or _REFUSED.search(str(cause)):
            self._refused(f"refused the connection: {cause!r}")
        else:
            _log.warning("amqp: the broker %s cannot be reached: %r", self._settings.broker, cause)
            self._settle(None)
        self._connect_later()

    def _closed(self, _: object, reason: BaseException) -> None:
        self._gone.set()
        if not self._is_stopping:
            _log.warning("amqp: the connection to %s has ended, and is made again: %r", self._settings.broker, reason)
            self._gone.clear()
            self._connect_later()

    def _connect_later(self) -> None:
        if not self._is_stopping:
            self._again = self._loop.call_later(self._pause_s, self._connect)
            self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)

    def _refused(self, what: str) -> None:
        self._settle(Usage(f"The broker {self._settings.broker} {what}.", remedy="Correct receive.amqp, or what the broker has."))

    def _settle(self, error: PenstockError | None) -> None:
        """End the start, if it has not ended; afterwards what is wrong is written to the log."""
        if not self._first.done():
            self._first.set_result(error)
        elif error is not None:
            _log.warning("amqp: %s", error)


def event_of(deliver: Basic.Deliver, properties: BasicProperties, body: bytes, *, settings: AmqpQueue) -> Event:
    """Return the event of a message: its body, with where it came from, its properties and headers as headers. Raises Usage."""
    own = properties.headers or {}
    producer, number = numbering_in(own)
    where = [("queue", settings.queue), ("exchange", deliver.exchange), ("routing_key", deliver.routing_key)]
    where.append(("redelivered", str(int(deliver.redelivered))))
    given = [(name, value) for name in _PROPERTIES if (value := getattr(properties, name)) is not None]
    given += [(f"header.{name}", value) for name, value in own.items()]
    return Event(
        value=body,
        headers=tuple((name, _bytes(value)) for name, value in (*where, *given)),
        producer=producer,
        number=number,
        remote=settings.broker,
    )


def _bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


def _give_back(arrived: _Arrived) -> None:
    if arrived.channel.is_open:
        arrived.channel.basic_nack(arrived.tag, requeue=True)


def _cause_of(error: BaseException) -> BaseException:
    """Return what made a connection fail, out of what pika wraps around it."""
    return next(_causes(error), error)


def _causes(error: BaseException) -> Iterator[BaseException]:
    inner = [*getattr(error, "exceptions", ()), *filter(None, (getattr(error, "exception", None),))]
    inner += [each for each in error.args if isinstance(each, BaseException)]
    for each in reversed(inner):
        yield from _causes(each)
    if not inner:
        yield error


def _parameters(settings: AmqpQueue) -> ConnectionParameters:
    host, port = host_and_port(settings.broker)
    login = {} if settings.user is None else {"credentials": PlainCredentials(settings.user, settings.password or "")}
    context = None if settings.tls is None else client_context(settings.tls, key="receive.amqp.tls")
    return ConnectionParameters(
        host=host,
        port=port,
        virtual_host=settings.virtual_host,
        heartbeat=_HEARTBEAT_S,
        connection_attempts=1,
        ssl_options=None if context is None else SSLOptions(context, host),
        client_properties={"connection_name": "penstock receive"},
        **login,
    )
