"""Events over TCP, as lines or as messages of syslog.

A line is answered, in order, with the sequence number that it has once it is durable. Lines that arrive together are submitted
and answered together. Where clients read no answers, nothing is written, and an event for which there is no room waits, and those
behind it, so that their connection stands still.
"""

import asyncio
import hmac
import math
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias, TypeVar

from penstock.errors import PenstockError, Refused, Usage
from penstock.journal.event import Event, Receipt
from penstock.journal.frame import size_of
from penstock.journal.group import GroupWriter, Receipts
from penstock.receive.rate import RateLimit
from penstock.receive.request import numbered_event
from penstock.receive.storing import GROUP_BYTES, stored
from penstock.receive.syslog import SyslogFraming
from penstock.spec.receive import SyslogListener, TcpListener
from penstock.support.listening import host_and_port, server_context

_AT_ONCE, _GROUPS = 100, 10
"""Events of one client that are submitted together, and groups of them that may wait for answers, or for room: then no more are
read."""
_AT_ONCE_S = 0.05
"""The same where so many events a second are allowed: a group is taken whole, also if that is too much."""
_CHUNK_BYTES = 1 << 16
_LOGIN_S = 10.0

_T = TypeVar("_T")
_Read: TypeAlias = "asyncio.Queue[_T | PenstockError | None]"
"""What was read, then the error that ended it, if one did, then None."""


class Framing(Protocol):
    """How events follow one another on one connection."""

    async def read(self, reader: asyncio.StreamReader) -> Sequence[bytes]:
        """Return the bytes of the events that have arrived, of one at least, of none at the end: what is torn is none.

        Raises Usage.
        """
        ...

    def event(self, data: bytes, *, remote: str) -> Event:
        """Return the event in those bytes. Raises Usage."""
        ...


class LineFraming:
    """Each line is an event; with `numbered` it is `PRODUCER NUMBER VALUE`."""

    def __init__(self, settings: TcpListener) -> None:
        self._settings = settings
        at_once = _AT_ONCE if settings.max_rate is None else round(_AT_ONCE_S * settings.max_rate)
        self._at_once = min(max(1, at_once), _AT_ONCE)
        self._lines, self._begun = deque[bytes](), b""

    async def read(self, reader: asyncio.StreamReader) -> Sequence[bytes]:
        """Return the next lines. Raises Usage."""
        while not self._lines:
            self._require_short(self._begun)
            chunk = await reader.read(_CHUNK_BYTES)
            if not chunk:
                return ()
            *lines, self._begun = (self._begun + chunk).split(b"\n")
            self._lines.extend(lines)
        return self._next_lines()

    def _next_lines(self) -> Sequence[bytes]:
        """Return lines up to one that is too long, which is refused when it is the first."""
        self._require_short(self._lines[0])
        lines: list[bytes] = []
        while self._lines and len(lines) < self._at_once and len(self._lines[0]) <= self._settings.max_line:
            lines.append(self._lines.popleft().rstrip(b"\r"))
        return lines

    def _require_short(self, line: bytes) -> None:
        if len(line) > self._settings.max_line:
            raise Usage(f"a line has more than {self._settings.max_line} bytes.", remedy="Raise max_line.")

    def event(self, data: bytes, *, remote: str) -> Event:
        """Return the event in a line. Raises Usage."""
        return numbered_event(data, remote=remote) if self._settings.numbered else Event(value=data, remote=remote)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Submitted:
    """Events that were submitted together, and what they will be answered."""

    events: Sequence[Event]
    receipts: "asyncio.Future[Receipts]"


def receiver_of_lines(settings: TcpListener, writer: GroupWriter) -> "TcpReceiver":
    """Return what listens for lines."""
    acknowledges = settings.acknowledge
    framing = lambda: LineFraming(settings)  # noqa: E731
    return TcpReceiver(settings, writer, framing, limit=settings.max_line, token=settings.token, acknowledges=acknowledges)


def receiver_of_syslog(settings: SyslogListener, writer: GroupWriter) -> "TcpReceiver":
    """Return what listens for messages of syslog."""
    framing = lambda: SyslogFraming(most_bytes=settings.max_message)  # noqa: E731
    return TcpReceiver(settings, writer, framing, limit=settings.max_message, token=None, acknowledges=False)


class TcpReceiver:
    """Listens while it is started; `stop` reads no more and answers what was read. `limit`: of bytes up to the end of a line."""

    def __init__(
        self,
        settings: TcpListener | SyslogListener,
        writer: GroupWriter,
        framing: Callable[[], Framing],
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
        room = asyncio.Semaphore(_GROUPS)
        peer = writer.get_extra_info("peername")
        remote = f"{peer[0]}:{peer[1]}"
        if self._acknowledges:
            answers: _Read[_Submitted] = asyncio.Queue()
            reading = asyncio.create_task(self._read(reader, answers, room, self._submitted, remote=remote))
            working = self._answer(answers, room, writer)
        else:
            groups: _Read[Sequence[Event]] = asyncio.Queue()
            reading = asyncio.create_task(self._read(reader, groups, room, _as_they_are, remote=remote))
            working = self._keep(groups, room)
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
        take: Callable[[Sequence[Event]], _T],
        *,
        remote: str,
    ) -> None:
        """Hand over events, and what ends them: behind one that is refused none is taken."""
        framing = self._framing()
        try:
            while True:
                await room.acquire()
                if delay_s := self._rate.delay_s():
                    await asyncio.sleep(delay_s)
                messages = await framing.read(reader)
                if not messages:
                    break
                self._rate.count(len(messages))
                events, wrong = _events(messages, framing, remote=remote)
                if events:
                    read.put_nowait(take(events))
                if wrong is not None:
                    raise wrong
        except PenstockError as error:
            read.put_nowait(error)
        finally:
            read.put_nowait(None)

    def _submitted(self, events: Sequence[Event]) -> _Submitted:
        """Submit events now, so that they keep their order."""
        receipts = asyncio.wrap_future(self._writer.submit(events))
        receipts.add_done_callback(_seen)
        return _Submitted(events=events, receipts=receipts)

    async def _answer(self, read: "_Read[_Submitted]", room: asyncio.Semaphore, writer: asyncio.StreamWriter) -> None:
        """Answer what was submitted, in its order, up to the first refusal."""
        try:
            while (submitted := await read.get()) is not None:
                if isinstance(submitted, PenstockError):
                    raise submitted
                async for receipts in self._receipts(submitted):
                    writer.write(b"".join(map(_answer, receipts)))
                    await writer.drain()
                room.release()
        except PenstockError as error:
            writer.write(f"ERR {' '.join(str(error).split())}\n".encode())

    async def _receipts(self, submitted: _Submitted) -> AsyncIterator[Receipts]:
        """Yield the receipts of a group. Of one that has an event which is wrong, those in front of it are taken one by one."""
        try:
            yield await submitted.receipts
        except (Usage, Refused):
            if len(submitted.events) == 1:
                raise
            for event in submitted.events:
                yield await asyncio.wrap_future(self._writer.submit([event]))

    async def _keep(self, read: "_Read[Sequence[Event]]", room: asyncio.Semaphore) -> None:
        """Make what was read durable, in its order, up to the first event that is wrong."""
        ends = False
        while not ends:
            events, groups, ends = await _waiting(read)
            try:
                async for _ in stored(events, self._writer, gives_up=lambda: self._is_stopping):
                    pass
            except PenstockError:
                return  # nobody reads why
            for _ in range(groups):
                room.release()


def _events(messages: Sequence[bytes], framing: Framing, *, remote: str) -> tuple[list[Event], PenstockError | None]:
    """Return the events up to one that is wrong, and what is wrong with it."""
    events: list[Event] = []
    for message in messages:
        try:
            events.append(framing.event(message, remote=remote))
        except PenstockError as wrong:
            return events, wrong
    return events, None


def _answer(receipt: Receipt) -> bytes:
    return b"OK\n" if receipt.sequence is None else b"OK %d\n" % receipt.sequence


def _seen(submitted: "asyncio.Future[Receipts]") -> None:
    """Look at its refusal, which asyncio would report: behind another refusal nobody answers it."""
    if not submitted.cancelled():
        submitted.exception()


def _as_they_are(events: Sequence[Event]) -> Sequence[Event]:
    return events


async def _waiting(read: "_Read[Sequence[Event]]") -> tuple[list[Event], int, bool]:
    """Return the events that wait, of one group at least, of how many groups they are, and whether it is all that comes."""
    events: list[Event] = []
    groups = size = 0
    while size < GROUP_BYTES and not (events and read.empty()):
        group = await read.get()
        if group is None or isinstance(group, PenstockError):
            return events, groups, True
        events += group
        groups += 1
        size += sum(map(size_of, group))
    return events, groups, False
