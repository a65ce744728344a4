"""Events as lines over TCP. Each line is answered, in order, with the sequence number that it has once it is durable."""

import asyncio
import hmac
import math
import time
from pathlib import Path
from typing import TypeAlias

from penstock.errors import PenstockError
from penstock.journal.event import Event
from penstock.journal.group import GroupWriter, Receipts
from penstock.receive.rate import RateLimit
from penstock.receive.request import numbered_event
from penstock.spec.receive import TcpListener
from penstock.support.listening import host_and_port, server_context

_UNANSWERED = 1_000
"""Lines of one client that may wait for their answers; then no more are read."""
_LOGIN_S = 10.0

_Answers: TypeAlias = "asyncio.Queue[asyncio.Future[bytes] | None]"


class TcpReceiver:
    """Listens while it is started; `stop` reads no more and answers what was read."""

    def __init__(self, settings: TcpListener, writer: GroupWriter) -> None:
        self._settings, self._writer = settings, writer
        self._rate = RateLimit(settings.max_rate or math.inf, now_s=time.monotonic)
        self._server: asyncio.Server | None = None
        self._reading: set[asyncio.Task[None]] = set()
        self._handling: set[asyncio.Task[None]] = set()

    async def start(self) -> str:
        """Begin to listen; return the address. Raises OSError, Usage."""
        host, port = host_and_port(self._settings.listen)
        tls = self._settings.tls
        context = None if tls is None else server_context(Path(tls.certificate_file), Path(tls.key_file))
        self._server = await asyncio.start_server(self._connected, host, port, limit=self._settings.max_line, ssl=context)
        return "{}:{}".format(*self._server.sockets[0].getsockname()[:2])

    async def stop(self) -> None:
        """Listen no more, read no more, and answer what was read."""
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
        if self._settings.token is None:
            return True
        try:
            line = await asyncio.wait_for(reader.readline(), _LOGIN_S)
        except (ValueError, asyncio.TimeoutError):
            return False
        return hmac.compare_digest(line.strip(), f"AUTH {self._settings.token}".encode())

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
                line = await reader.readline()
                if not line.endswith(b"\n"):
                    break  # a torn line is no event
                answers.put_nowait(self._taken(line.rstrip(b"\r\n"), remote))
        except ValueError:
            answers.put_nowait(asyncio.ensure_future(_error(f"a line has more than {self._settings.max_line} bytes")))
        finally:
            answers.put_nowait(None)

    def _taken(self, line: bytes, remote: str) -> "asyncio.Future[bytes]":
        """Submit a line now, so that lines keep their order; return the future of its answer."""
        self._rate.count(1)
        try:
            event = numbered_event(line, remote=remote) if self._settings.numbered else Event(value=line, remote=remote)
            submitted = self._writer.submit([event])
        except PenstockError as error:
            return asyncio.ensure_future(_error(str(error)))
        return asyncio.ensure_future(_answer(asyncio.wrap_future(submitted)))


async def _answer(receipts: "asyncio.Future[Receipts]") -> bytes:
    try:
        [receipt] = await receipts
    except PenstockError as error:
        return await _error(str(error))
    return b"OK\n" if receipt.sequence is None else b"OK %d\n" % receipt.sequence


async def _error(text: str) -> bytes:
    return f"ERR {' '.join(text.split())}\n".encode()
