"""Runs a receiver: its journal, its listeners, and their end, at which nothing that was read is left without an answer."""

import asyncio
import logging
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Protocol

from penstock.errors import DependencyMissing, Failed, PenstockError
from penstock.journal.access import LocalJournal
from penstock.journal.group import GroupLimits, GroupWriter
from penstock.journal.journal import Journal, JournalLimits
from penstock.journal.reading import JournalReader
from penstock.journal.storage import LocalStorage
from penstock.receive.packet_ids import packet_ids_in, save
from penstock.receive.recent_ids import recent_ids
from penstock.receive.tcp import receiver_of_lines, receiver_of_syslog
from penstock.receive.udp import SyslogUdpReceiver
from penstock.spec.receive import AmqpQueue, HttpListener, MqttSubscription, ReadListener, Receive, ReceiverMetrics
from penstock.support.extras import install_command
from penstock.support.filesystem_errors import problem_of

_log = logging.getLogger(__name__)
_LOOK_S = 0.2
_US_PER_MS = 1_000


class Listener(Protocol):
    """What takes events from clients by one protocol."""

    async def start(self) -> str:
        """Begin to listen; return the address. Raises OSError, Usage."""
        ...

    async def stop(self) -> None:
        """Listen no more, and answer what was read."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Listening:
    """A receiver that is ready. `addresses` are by listener, as `http` and `tcp`; `next` is the number of its next event."""

    journal: str
    next: int
    addresses: Mapping[str, str]


def receive(settings: Receive, *, ready: Callable[[Listening], None]) -> None:
    """Receive until SIGTERM or SIGINT. Raises what opens the journal, and Failed if its disk failed."""
    opened = [_journal(settings)]
    first = opened[0].next
    writer = GroupWriter(lambda: opened.pop() if opened else _journal(settings), GroupLimits(linger_s=settings.linger / 1000))
    try:
        asyncio.run(_serve(settings, writer, lambda addresses: ready(_listening(settings, first, addresses))))
    finally:
        writer.close()
    if writer.failure is not None:
        raise writer.failure


def _listening(settings: Receive, first: int, addresses: Mapping[str, str]) -> Listening:
    return Listening(journal=settings.journal, next=first, addresses=addresses)


def _journal(settings: Receive) -> Journal:
    limits = JournalLimits(
        segment_bytes=settings.segment_size,
        most_bytes=settings.max_size,
        oldest_us=None if settings.max_age is None else settings.max_age * _US_PER_MS,
        least_free_bytes=settings.least_free,
        keep_us=settings.keep * _US_PER_MS,
    )
    copy = None if settings.copy_to is None else Path(settings.copy_to)
    return Journal(Path(settings.journal), now_us=_now_us, copy=copy, limits=limits)


async def _serve(settings: Receive, writer: GroupWriter, ready: Callable[[Mapping[str, str]], None]) -> None:
    wanted = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, wanted.set)
    listeners: dict[str, Listener] = {
        **({} if settings.http is None else {"http": _http(settings.http, writer)}),
        **({} if settings.tcp is None else {"tcp": receiver_of_lines(settings.tcp, writer)}),
        **({} if settings.syslog is None else {"syslog": receiver_of_syslog(settings.syslog, writer)}),
        **({} if settings.syslog_udp is None else {"syslog_udp": SyslogUdpReceiver(settings.syslog_udp, writer)}),
        **({} if settings.mqtt is None else {"mqtt": _mqtt(settings.mqtt, writer, settings)}),
        **({} if settings.amqp is None else {"amqp": _amqp(settings.amqp, writer, settings.journal)}),
        **({} if settings.read is None else {"read": _read(settings.read, settings.journal)}),
        **({} if settings.metrics is None else {"metrics": _metrics(settings.metrics, writer, settings.journal)}),
    }
    for name, given in (("http", settings.http), ("tcp", settings.tcp)):
        if given is not None and given.is_open_to_the_network:
            _log.warning("receive.%s listens on %s without a token: everyone who reaches it can write.", name, given.listen)
    try:
        ready({name: await _started(name, listener) for name, listener in listeners.items()})
        while not wanted.is_set() and writer.failure is None:
            try:
                await asyncio.wait_for(wanted.wait(), _LOOK_S)
            except asyncio.TimeoutError:
                continue
    finally:
        await asyncio.gather(*(listener.stop() for listener in listeners.values()))


async def _started(name: str, listener: "Listener") -> str:
    try:
        return await listener.start()
    except PenstockError:
        raise
    except OSError as error:
        raise Failed(
            f"The receiver cannot listen at receive.{name}.listen: {error.strerror or problem_of(error).reason}.",
            remedy="Stop what listens there, or name another address.",
        ) from error


def _http(settings: HttpListener, writer: GroupWriter) -> "Listener":
    with _needs("receive.http", package="aiohttp", extra="receive"):
        from penstock.receive.http import HttpReceiver  # noqa: PLC0415 - whether its package is installed is the question
    return HttpReceiver(settings, writer)


def _read(settings: ReadListener, journal: str) -> "Listener":
    with _needs("receive.read", package="aiohttp", extra="receive"):
        from penstock.receive.read_endpoint import ReadEndpoint  # noqa: PLC0415 - whether its package is installed is the question
    return ReadEndpoint(settings, LocalJournal(LocalStorage(), Path(journal), now_us=_now_us))


def _metrics(settings: ReceiverMetrics, writer: GroupWriter, journal: str) -> "Listener":
    with _needs("receive.metrics", package="aiohttp", extra="receive"):
        import_module("penstock.receive.http_server")
    with _needs("receive.metrics", package="prometheus-client", extra="metrics"):
        from penstock.receive.metrics import MetricsListener  # noqa: PLC0415 - as above
    return MetricsListener(settings, writer, LocalStorage(), Path(journal))


def _now_us() -> int:
    return time.time_ns() // 1_000


def _mqtt(subscription: MqttSubscription, writer: GroupWriter, settings: Receive) -> "Listener":
    with _needs("receive.mqtt", package="paho-mqtt", extra="mqtt"):
        from penstock.receive.mqtt import MqttReceiver  # noqa: PLC0415 - whether its package is installed is the question
    storage, homes = LocalStorage(), [Path(each) for each in (settings.journal, settings.copy_to) if each is not None]
    packet_ids = packet_ids_in(storage, homes, broker=subscription.broker, client_id=subscription.client_id)
    return MqttReceiver(subscription, writer, packet_ids, save=partial(save, storage, homes))


def _amqp(settings: AmqpQueue, writer: GroupWriter, journal: str) -> "Listener":
    with _needs("receive.amqp", package="pika", extra="amqp"):
        from penstock.receive.amqp import AmqpReceiver  # noqa: PLC0415 - whether its package is installed is the question
    reader = JournalReader(LocalStorage(), Path(journal))
    is_recognised = settings.unique_message_ids
    recent = recent_ids(reader, queue=settings.queue, remote=settings.broker) if is_recognised else None
    return AmqpReceiver(settings, writer, recent)


@contextmanager
def _needs(listener: str, *, package: str, extra: str) -> Iterator[None]:
    """Raise DependencyMissing if an import in the body fails."""
    try:
        yield
    except ImportError as cause:
        raise DependencyMissing(
            f"{listener} needs the package {package}, which is not installed.",
            remedy=f"Install it: {install_command(extra)}",
        ) from cause
