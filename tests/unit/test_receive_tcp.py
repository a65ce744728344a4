"""The listener for lines, over a real journal, in this process."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from penstock.journal.group import GroupLimits, GroupWriter
from penstock.journal.journal import Journal, JournalLimits
from penstock.receive.tcp import _UNANSWERED, receiver_of_lines
from penstock.spec.receive import TcpListener

Client = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[bytes]]


def serve(
    directory: Path, client: Client, *, linger_s: float, waiting_bytes: int = 1 << 20, **more: bool
) -> tuple[int, list[bytes]]:
    """Serve one client and stop as an operator does. How many events are durable then, and all answers that it got."""

    def opened() -> Journal:
        return Journal(directory, now_us=lambda: time.time_ns() // 1_000, limits=JournalLimits(least_free_bytes=1))

    async def served() -> bytes:
        receiver = receiver_of_lines(TcpListener(listen="127.0.0.1:0", **more), writer)
        host, _, port = (await receiver.start()).rpartition(":")
        reader, stream = await asyncio.open_connection(host, int(port))
        first = await client(reader, stream)
        await asyncio.wait_for(receiver.stop(), 30)
        rest = await asyncio.wait_for(reader.read(), 30)
        stream.close()
        return first + rest

    writer = GroupWriter(opened, GroupLimits(linger_s=linger_s, waiting_bytes=waiting_bytes))
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


def test_what_has_no_room_waits_when_its_client_reads_no_answers(tmp_path: Path) -> None:
    """Most of the lines are refused at first, as more wait for the disk than may: nobody would send them again."""
    lines = 300

    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        writer.write(b"x\n" * lines)
        writer.write_eof()
        return await asyncio.wait_for(reader.read(), 30)

    assert serve(tmp_path, client, linger_s=0.05, waiting_bytes=100 * 100, acknowledge=False) == (lines, [])
