"""Syslog over UDP, best effort: a datagram has no answer, and what never arrived is not known. What is dropped is counted."""

import asyncio
import logging
import math
import time
from typing import Any

from penstock.errors import PenstockError
from penstock.journal.group import GroupWriter, Receipts
from penstock.receive.rate import RateLimit
from penstock.receive.syslog import event_of_message
from penstock.spec.receive import SyslogUdpListener
from penstock.support.listening import host_and_port

_log = logging.getLogger(__name__)
_REPORT_EVERY_S = 10.0


class SyslogUdpReceiver:
    """Listens while it is started; `stop` waits until what arrived is durable. `dropped`: messages that were not taken."""

    def __init__(self, settings: SyslogUdpListener, writer: GroupWriter) -> None:
        self._settings, self._writer = settings, writer
        self._rate = RateLimit(settings.max_rate or math.inf, now_s=time.monotonic)
        self._transport: asyncio.DatagramTransport | None = None
        self._pending: set[asyncio.Future[Receipts]] = set()
        self._reported, self._next_report_s = 0, 0.0
        self.dropped = 0

    async def start(self) -> str:
        """Begin to listen; return the address. Raises OSError."""
        host, port = host_and_port(self._settings.listen)
        loop = asyncio.get_running_loop()
        self._transport, _ = await loop.create_datagram_endpoint(lambda: _Datagrams(self), local_addr=(host, port))
        return "{}:{}".format(*self._transport.get_extra_info("sockname")[:2])

    async def stop(self) -> None:
        """Listen no more, and make durable what arrived."""
        if self._transport is not None:
            self._transport.close()
        await asyncio.gather(*self._pending, return_exceptions=True)
        self._report(at_once=True)

    def take(self, message: bytes, *, remote: str) -> None:
        """Submit a message, or count it as dropped: beyond the rate, when too many bytes wait, or the journal is full."""
        if self._rate.delay_s():
            self._drop()
            return
        self._rate.count(1)
        try:
            pending = asyncio.wrap_future(self._writer.submit([event_of_message(message, remote=remote)]))
        except PenstockError:
            self._drop()
            return
        self._pending.add(pending)
        pending.add_done_callback(self._settle)

    def _settle(self, done: "asyncio.Future[Receipts]") -> None:
        self._pending.discard(done)
        if done.cancelled() or done.exception() is not None:
            self._drop()

    def _drop(self) -> None:
        self.dropped += 1
        self._report(at_once=False)

    def _report(self, *, at_once: bool) -> None:
        now_s = time.monotonic()
        if self.dropped > self._reported and (at_once or now_s >= self._next_report_s):
            self._reported, self._next_report_s = self.dropped, now_s + _REPORT_EVERY_S
            _log.warning("syslog_udp: %d messages were dropped: too many came, or the journal is full", self.dropped)


class _Datagrams(asyncio.DatagramProtocol):
    def __init__(self, receiver: SyslogUdpReceiver) -> None:
        self._receiver = receiver

    def datagram_received(self, data: bytes, addr: tuple[str | Any, int]) -> None:
        """Hand over a datagram, which is one message."""
        self._receiver.take(data.rstrip(b"\r\n\0"), remote=f"{addr[0]}:{addr[1]}")
