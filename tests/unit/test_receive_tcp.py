"""The listener for lines, over a real journal, in this process."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from penstock.journal.group import GroupLimits, GroupWriter
from penstock.journal.journal import Journal, JournalLimits
from penstock.journal.reading import JournalReader
from penstock.journal.storage import LocalStorage
from penstock.receive.tcp import _UNANSWERED, receiver_of_lines
from penstock.spec.receive import TcpListener

Client = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[bytes]]


def serve(
    directory: Path,
    client: Client,
    *,
    linger_s: float,
    storage: LocalStorage | None = None,
    **more: bool,
) -> tuple[int, list[bytes]]:
    """Serve one client and stop as an operator does. How many events are durable then, and all answers that it got."""

    def opened() -> Journal:
        limits = JournalLimits(least_free_bytes=1)
        return Journal(directory, now_us=lambda: time.time_ns() // 1_000, limits=limits, storage=storage)

    async def served() -> bytes:
        receiver = receiver_of_lines(TcpListener(listen="127.0.0.1:0", **more), writer)
        host, _, port = (await receiver.start()).rpartition(":")
        reader, stream = await asyncio.open_connection(host, int(port))
        first = await client(reader, stream)
        await asyncio.wait_for(receiver.stop(), 30)
        rest = await asyncio.wait_for(reader.read(), 30)
        stream.close()
        return first + rest

    writer = GroupWriter(opened, GroupLimits(linger_s=linger_s))
    try:
        answers = asyncio.run(served())
    finally:
        writer.close()
    journal = opened()
    journal.close()
    return journal.durable, answers.splitlines()


def test_a_client_that_sends_all_at_once_and_ends_is_answered_line_by_line(tmp_path: Path) -> None:
    """As many lines wait as may when the end comes: nothing hangs on the place that the end would take."""
    lines = _UNANSWERED + 1

    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        writer.write(b"x\n" * lines)
        writer.write_eof()
        return await asyncio.wait_for(reader.read(), 30)

    assert serve(tmp_path, client, linger_s=0.5) == (lines, [b"OK %d" % number for number in range(lines)])


def test_a_stop_answers_all_that_was_taken(tmp_path: Path) -> None:
    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        writer.write(b"x\n" * (5 * _UNANSWERED))
        await writer.drain()
        return await reader.readline()

    durable, answers = serve(tmp_path, client, linger_s=0.1)
    assert answers == [b"OK %d" % number for number in range(durable)]


class FullDisk(LocalStorage):
    """It has no room for as many looks at it as `refusals`."""

    def __init__(self, refusals: int) -> None:
        self._refusals = refusals

    def free_bytes(self, directory: Path) -> int:
        self._refusals -= 1
        return 0 if self._refusals >= 0 else super().free_bytes(directory)


def test_what_is_behind_an_event_without_room_waits_too(tmp_path: Path) -> None:
    """Events of a connection keep their order though the disk is full for a moment, and those with numbers leave no gap then."""
    lines = [b"p %d x%d" % (number, number) for number in range(1, 301)]

    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        writer.write(b"\n".join(lines) + b"\nno number\np 301 behind it\n")
        return await asyncio.wait_for(reader.read(), 30)

    disk = FullDisk(refusals=2)
    assert serve(tmp_path, client, linger_s=0.0, storage=disk, acknowledge=False, numbered=True) == (len(lines), [])
    reader = JournalReader(LocalStorage(), tmp_path)
    extent = reader.extent()
    assert extent is not None
    found = reader.read(0, extent.next, journal_id=extent.journal_id)
    assert [b"p %d %s" % (each.event.number, each.event.value) for each in found] == lines


def test_behind_a_line_that_is_refused_none_is_taken(tmp_path: Path) -> None:
    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        writer.write(b"p 1 a\np %s b\nq 1 c\n" % (b"9" * 5_000))
        return await asyncio.wait_for(reader.read(), 30)

    durable, answers = serve(tmp_path, client, linger_s=0.0, numbered=True)
    assert (durable, answers[0], len(answers)) == (1, b"OK 0", 2)
    assert answers[1].startswith(b"ERR The number of an event is '99")
