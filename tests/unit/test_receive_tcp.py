"""The listener for lines, over a real journal, in this process."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.journal.event import Record
from penstock.journal.group import GroupLimits, GroupWriter
from penstock.journal.journal import Journal, JournalLimits
from penstock.journal.reading import JournalReader
from penstock.journal.storage import LocalStorage
from penstock.receive.tcp import _AT_ONCE, _GROUPS, receiver_of_lines
from penstock.spec.receive import TcpListener

Client = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[bytes]]


def serve(
    directory: Path,
    client: Client,
    *,
    linger_s: float,
    storage: LocalStorage | None = None,
    **more: Any,
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


def journal_in(directory: Path) -> list[Record]:
    reader = JournalReader(LocalStorage(), directory)
    extent = reader.extent()
    assert extent is not None
    return list(reader.read(0, extent.next, journal_id=extent.journal_id))


def test_a_client_that_sends_all_at_once_and_ends_is_answered_line_by_line(tmp_path: Path) -> None:
    """As many lines wait as may when the end comes: nothing hangs on the place that the end would take."""
    lines = _AT_ONCE * _GROUPS + 1

    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        writer.write(b"x\n" * lines)
        writer.write_eof()
        return await asyncio.wait_for(reader.read(), 30)

    assert serve(tmp_path, client, linger_s=0.5) == (lines, [b"OK %d" % number for number in range(lines)])


def test_a_stop_answers_all_that_was_taken(tmp_path: Path) -> None:
    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        writer.write(b"x\n" * (5 * _AT_ONCE * _GROUPS))
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
    assert [b"p %d %s" % (each.event.number, each.event.value) for each in journal_in(tmp_path)] == lines


def test_behind_a_line_that_is_refused_none_is_taken(tmp_path: Path) -> None:
    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        writer.write(b"p 1 a\np %s b\nq 1 c\n" % (b"9" * 5_000))
        return await asyncio.wait_for(reader.read(), 30)

    durable, answers = serve(tmp_path, client, linger_s=0.0, numbered=True)
    assert (durable, answers[0], len(answers)) == (1, b"OK 0", 2)
    assert answers[1].startswith(b"ERR The number of an event is '99")


def test_lines_in_front_of_a_number_out_of_order_are_taken(tmp_path: Path) -> None:
    """Though all arrive together, and a group is appended whole or not at all."""

    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        writer.write(b"p 1 a\np 2 b\np 4 d\np 5 e\n")
        return await asyncio.wait_for(reader.read(), 30)

    durable, answers = serve(tmp_path, client, linger_s=0.0, numbered=True)
    assert (durable, answers[:2], len(answers)) == (2, [b"OK 0", b"OK 1"], 3)
    assert answers[2].startswith(b"ERR Producer 'p' sent number 4, and its last one here is 2.")


@pytest.mark.parametrize("acknowledge", [True, False])
def test_a_line_is_one_however_it_arrives_and_what_is_torn_is_none(tmp_path: Path, *, acknowledge: bool) -> None:
    sent = b"one\ntwo\r\n\nlonger than a packet\nthe last\ntorn"

    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        for at in range(len(sent)):
            writer.write(sent[at : at + 1])
            await writer.drain()
        writer.write_eof()
        return await asyncio.wait_for(reader.read(), 30)

    expected = [b"one", b"two", b"", b"longer than a packet", b"the last"]
    durable, answers = serve(tmp_path, client, linger_s=0.0, acknowledge=acknowledge)
    assert (durable, answers) == (5, [b"OK %d" % number for number in range(5)] if acknowledge else [])
    assert [each.event.value for each in journal_in(tmp_path)] == expected


@pytest.mark.parametrize("end", [b"", b"\n", b"\nbehind it\n"])
def test_a_line_that_is_too_long_is_refused_behind_those_that_are_not(tmp_path: Path, end: bytes) -> None:
    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        writer.write(b"short\n" + b"x" * 1_000 + b"\n" + b"y" * 1_001 + end)
        return await asyncio.wait_for(reader.read(), 30)

    durable, answers = serve(tmp_path, client, linger_s=0.0, max_line=1_000)
    assert (durable, answers[:2]) == (2, [b"OK 0", b"OK 1"])
    assert answers[2] == b"ERR a line has more than 1000 bytes. Raise max_line."
