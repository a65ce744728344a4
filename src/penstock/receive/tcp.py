"""Events over TCP, as lines or as messages of syslog.

A line is answered, in order, with the sequence number that it has once it is durable. Where clients read no answers, nothing is
written, and an event for which there is no room waits, and those behind it, so that their connection stands still.
"""

import asyncio
import hmac
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeAlias, TypeVar

from penstock.errors import PenstockError, Usage
from penstock.journal.event import Event
from penstock.journal.frame import size_of
from penstock.journal.group import GroupWriter, Receipts
from penstock.receive.rate import RateLimit
from penstock.receive.request import numbered_event
from penstock.receive.storing import GROUP_BYTES, stored
from penstock.receive.syslog import SyslogFraming
from penstock.spec.receive import SyslogListener, TcpListener
from penstock.support.listening import host_and_port, server_context

_UNANSWERED = 1_000
"""Lines of one client that may wait for their answers, or for room; then no more are read."""
_LOGIN_S = 10.0

_T = TypeVar("_T")
_Read: TypeAlias = "asyncio.Queue[_T | PenstockError | None]"
"""What was read, then the error that ended it, if one did, then None."""


class Framing(Protocol):
    """How events follow one another on a connection."""

    async def read(self, reader: asyncio.StreamReader) -> bytes | None:
        """Return the bytes of the next event, None at the end: what is torn there is no event. Raises Usage."""
        ...

    def event(self, data: bytes, *, remote: str) -> Event:
        """Return the event in those bytes. Raises Usage."""
        ...


class LineFraming:
    """Each line is an event; with `numbered` it is `PRODUCER NUMBER VALUE`."""

    def __init__(self, settings: TcpListener) -> None:
        self._settings = settings

    async def read(self, reader: asyncio.StreamReader) -> bytes | None:
        """Return the next line. Raises Usage."""
        try:
            line = await reader.readline()
        except ValueError:
            raise Usage(f"a line has more than {self._settings.max_line} bytes.", remedy="Raise max_line.") from None
        return line.rstrip(b"\r\n") if line.endswith(b"\n") else None

    def event(self, data: bytes, *, remote: str) -> Event:
        """Return the event in a line. Raises Usage."""
        return numbered_event(data, remote=remote) if self._settings.numbered else Event(value=data, remote=remote)


def receiver_of_lines(settings: TcpListener, writer: GroupWriter) -> "TcpReceiver":
    """Return what listens for lines."""
    acknowledges = settings.acknowledge
    return TcpReceiver(
        settings, writer, LineFraming(settings), limit=settings.max_line, token=settings.token, acknowledges=acknowledges
    )


def receiver_of_syslog(settings: SyslogListener, writer: GroupWriter) -> "TcpReceiver":
    """Return what listens for messages of syslog."""
    framing = SyslogFraming(most_bytes=settings.max_message)
    return TcpReceiver(settings, writer, framing, limit=settings.max_message, token=None, acknowledges=False)


class TcpReceiver:
    """Listens while it is started; `stop` reads no more and answers what was read. `limit`: of bytes up to the end of a line."""

    def __init__(
        self,
        settings: TcpListener | SyslogListener,
        writer: GroupWriter,
        framing: Framing,
        *,
        limit: int,
        token: str | None,
        acknowledges: bool,
    ) -> None:
        self._settings, self._writer, self._framing = settings, writer, framing
        self._limit, self._token, self._acknowledges = limit, token, acknowledges
        self._is_stopping = False
        self._rate = RateLimit(settings.max_rate or math.inf, now_s=time.monotonic)
        self._server: asyncio.Server | None = None
        self._reading: set[asyncio.Task[None]] = set()
        self._handling: set[asyncio.Task[None]] = set()

    async def start(self) -> str:
        """Begin to listen; return the address. Raises OSError, Usage."""
        host, port = host_and_port(self._settings.listen)
        tls = self._settings.tls
        context = None if tls is None else server_context(Path(tls.certificate_file), Path(tls.key_file))
        self._server = await asyncio.start_server(self._connected, host, port, limit=self._limit, ssl=context)
        return "{}:{}".format(*self._server.sockets[0].getsockname()[:2])

    async def stop(self) -> None:
        """Listen no more, read no more, and answer what was read."""
        self._is_stopping = True
        if self._server is not None:
            self._server.close()
        for task in list(self._reading):
            task.cancel()
        await asyncio.gather(*self._handling, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._handling.add(task)
        try:
            if len(self._handling) > self._settings.max_connections:
                writer.write(b"ERR too many connections\n")
            elif await self._is_allowed(reader):
                await self._serve(reader, writer)
            else:
                writer.write(b"ERR wrong or missing token\n")
            await writer.drain()
        except (ConnectionError, asyncio.TimeoutError):
            pass  # the client is gone: what it got no answer for it sends again
        finally:
            self._handling.discard(task)
            writer.close()

    async def _is_allowed(self, reader: asyncio.StreamReader) -> bool:
        if self._token is None:
            return True
        try:
            line = await asyncio.wait_for(reader.readline(), _LOGIN_S)
        except (ValueError, asyncio.TimeoutError):
            return False
        return hmac.compare_digest(line.strip(), f"AUTH {self._token}".encode())

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Read events and answer or keep them; reading goes on while earlier ones are made durable."""
        room = asyncio.Semaphore(_UNANSWERED)
        peer = writer.get_extra_info("peername")
        remote = f"{peer[0]}:{peer[1]}"
        if self._acknowledges:
            answers: _Read[asyncio.Future[Receipts]] = asyncio.Queue()
            reading = asyncio.create_task(self._read(reader, answers, room, self._submitted, remote=remote))
            working = self._answer(answers, room, writer)
        else:
            events: _Read[Event] = asyncio.Queue()
            reading = asyncio.create_task(self._read(reader, events, room, _as_it_is, remote=remote))
            working = self._keep(events, room)
        self._reading.add(reading)
        try:
            await working
        finally:
            reading.cancel()
            self._reading.discard(reading)

    async def _read(
        self,
        reader: asyncio.StreamReader,
        read: "_Read[_T]",
        room: asyncio.Semaphore,
        take: Callable[[Event], _T],
        *,
        remote: str,
    ) -> None:
        """Hand over event after event, and what ends them: behind one that is refused none is taken."""
        try:
            while True:
                await room.acquire()
                if delay_s := self._rate.delay_s():
                    await asyncio.sleep(delay_s)
                data = await self._framing.read(reader)
                if data is None:
                    break
                self._rate.count(1)
                read.put_nowait(take(self._framing.event(data, remote=remote)))
        except PenstockError as error:
            read.put_nowait(error)
        finally:
            read.put_nowait(None)

    def _submitted(self, event: Event) -> "asyncio.Future[Receipts]":
        """Submit an event now, so that events keep their order."""
        submitted = asyncio.wrap_future(self._writer.submit([event]))
        submitted.add_done_callback(_seen)
        return submitted

    async def _answer(
        self, read: "_Read[asyncio.Future[Receipts]]", room: asyncio.Semaphore, writer: asyncio.StreamWriter
    ) -> None:
        """Answer what was submitted, in its order, up to the first refusal."""
        try:
            while (submitted := await read.get()) is not None:
                if isinstance(submitted, PenstockError):
                    raise submitted
                [receipt] = await submitted
                room.release()
                writer.write(b"OK\n" if receipt.sequence is None else b"OK %d\n" % receipt.sequence)
                await writer.drain()
        except PenstockError as error:
            writer.write(f"ERR {' '.join(str(error).split())}\n".encode())

    async def _keep(self, read: "_Read[Event]", room: asyncio.Semaphore) -> None:
        """Make what was read durable, in its order, up to the first event that is wrong."""
        ends = False
        while not ends:
            events, ends = await _group(read)
            try:
                async for receipts in stored(events, self._writer, gives_up=lambda: self._is_stopping):
                    for _ in receipts:
                        room.release()
            except PenstockError:
                return  # nobody reads why


def _seen(submitted: "asyncio.Future[Receipts]") -> None:
    """Look at its refusal, which asyncio would report: behind another refusal nobody answers it."""
    if not submitted.cancelled():
        submitted.exception()


def _as_it_is(event: Event) -> Event:
    return event


async def _group(read: "_Read[Event]") -> tuple[list[Event], bool]:
    """Return what waits, one event at least, and whether it is all that comes."""
    events: list[Event] = []
    size = 0
    while size < GROUP_BYTES and not (events and read.empty()):
        event = await read.get()
        if not isinstance(event, Event):
            return events, True
        events.append(event)
        size += size_of(event)
    return events, False
