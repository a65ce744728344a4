"""Events over TCP, as lines or as messages of syslog.

A line is answered, in order, with the sequence number that it has once it is durable. Where clients read no answers, nothing is
written, and an event for which there is no room waits, so that its connection stands still.
"""

import asyncio
import hmac
import math
import time
from pathlib import Path
from typing import Protocol, TypeAlias

from penstock.errors import PenstockError, Usage
from penstock.journal.event import Event
from penstock.journal.group import GroupWriter, Receipts
from penstock.receive.rate import RateLimit
from penstock.receive.request import numbered_event
from penstock.receive.storing import store
from penstock.receive.syslog import SyslogFraming
from penstock.spec.receive import SyslogListener, TcpListener
from penstock.support.listening import host_and_port, server_context

_UNANSWERED = 1_000
"""Lines of one client that may wait for their answers; then no more are read."""
_LOGIN_S = 10.0

_Answers: TypeAlias = "asyncio.Queue[asyncio.Future[bytes] | None]"


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
        """Read lines and answer them; reading goes on while earlier lines are made durable."""
        answers: _Answers = asyncio.Queue()
        room = asyncio.Semaphore(_UNANSWERED)
        peer = writer.get_extra_info("peername")
        reading = asyncio.create_task(self._read(reader, answers, room, remote=f"{peer[0]}:{peer[1]}"))
        self._reading.add(reading)
        try:
            while (answer := await answers.get()) is not None:
                text = await answer
                room.release()
                if self._acknowledges:
                    writer.write(text)
                    await writer.drain()
                if text.startswith(b"ERR"):
                    return
        finally:
            reading.cancel()
            self._reading.discard(reading)

    async def _read(self, reader: asyncio.StreamReader, answers: _Answers, room: asyncio.Semaphore, *, remote: str) -> None:
        """Submit line after line and hand over its answer, None at the end: what was submitted is answered, however it ends."""
        try:
            while True:
                await room.acquire()
                if delay_s := self._rate.delay_s():
                    await asyncio.sleep(delay_s)
                data = await self._framing.read(reader)
                if data is None:
                    break
                answers.put_nowait(self._taken(data, remote))
        except Usage as error:
            answers.put_nowait(asyncio.ensure_future(_error(str(error))))
        finally:
            answers.put_nowait(None)

    def _taken(self, data: bytes, remote: str) -> "asyncio.Future[bytes]":
        """Submit an event now, so that events keep their order; return the future of its answer."""
        self._rate.count(1)
        try:
            event = self._framing.event(data, remote=remote)
            if not self._acknowledges:
                return asyncio.ensure_future(self._stored(event))
            submitted = self._writer.submit([event])
        except PenstockError as error:
            return asyncio.ensure_future(_error(str(error)))
        return asyncio.ensure_future(_answer(asyncio.wrap_future(submitted)))

    async def _stored(self, event: Event) -> bytes:
        try:
            await store(event, self._writer, gives_up=lambda: self._is_stopping)
        except PenstockError as error:
            return await _error(str(error))
        return b"OK\n"


async def _answer(receipts: "asyncio.Future[Receipts]") -> bytes:
    try:
        [receipt] = await receipts
    except PenstockError as error:
        return await _error(str(error))
    return b"OK\n" if receipt.sequence is None else b"OK %d\n" % receipt.sequence


async def _error(text: str) -> bytes:
    return f"ERR {' '.join(text.split())}\n".encode()
