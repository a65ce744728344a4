"""Messages of syslog: the fields of their headers, and how they follow one another on a connection."""

import asyncio
import time
from pathlib import Path

import pytest

from penstock.errors import Usage
from penstock.journal.group import GroupWriter
from penstock.journal.journal import Journal, JournalLimits
from penstock.receive.syslog import SyslogFraming, event_of_message
from penstock.receive.udp import SyslogUdpReceiver
from penstock.spec.receive import SyslogUdpListener

RFC5424 = b'<165>1 2003-10-11T22:14:15.003Z host.example app 77 ID47 [a b="c"] An event'


@pytest.mark.parametrize(
    ("message", "fields"),
    [
        (
            RFC5424,
            "facility=20 severity=5 timestamp=2003-10-11T22:14:15.003Z hostname=host.example app_name=app procid=77 msgid=ID47",
        ),
        (b"<0>1 - - - - - -", "facility=0 severity=0"),
        (
            b"<34>Oct 11 22:14:15 mymachine su: 'su root' failed",
            "facility=4 severity=2 timestamp=Oct 11 22:14:15 hostname=mymachine app_name=su",
        ),
        (
            b"<13>Feb  5 17:32:18 fe80::1 cron[12]: x",
            "facility=1 severity=5 timestamp=Feb  5 17:32:18 hostname=fe80::1 app_name=cron procid=12",
        ),
        (b"<13>Feb  5 17:32:18 cron[12]: x", "facility=1 severity=5 timestamp=Feb  5 17:32:18 app_name=cron procid=12"),
        (b"<191>Use the BFG!", "facility=23 severity=7"),
        (b"<192>1 - host app - - -", ""),
        (b"<007>x", ""),
        (b"\xff no syslog", ""),
        (b"", ""),
    ],
)
def test_fields_are_found_and_the_message_stays_as_it_is(message: bytes, fields: str) -> None:
    event = event_of_message(message, remote="h:1")
    assert (event.value, event.remote) == (message, "h:1")
    assert " ".join(f"{name}={value.decode()}" for name, value in event.headers) == fields


def messages_of(data: bytes) -> list[bytes]:
    async def read() -> list[bytes]:
        reader = asyncio.StreamReader(limit=100)
        reader.feed_data(data)
        reader.feed_eof()
        framing, found = SyslogFraming(most_bytes=100), list[bytes]()
        while messages := await framing.read(reader):
            found += messages
        return found

    return asyncio.run(read())


@pytest.mark.parametrize(
    ("data", "messages"),
    [
        (b"<1>a\n<2>b\r\n<3>c\0\n", [b"<1>a", b"<2>b", b"<3>c"]),
        (b"5 <1>a\n4 <2>b", [b"<1>a\n", b"<2>b"]),
        (b"4 <1>a\n<2>b\n4 <3>c", [b"<1>a", b"<2>b", b"<3>c"]),
        (b"100 " + b"x" * 100, [b"x" * 100]),
        (b"<1>a\n<2>tor", [b"<1>a"]),
        (b"4 <1>a9 <2>tor", [b"<1>a"]),
        (b"4 <1>a9", [b"<1>a"]),
        (b"", []),
    ],
    ids=["lines", "counted", "both", "longest", "torn line", "torn message", "torn length", "nothing"],
)
def test_both_framings_are_told_apart(data: bytes, messages: list[bytes]) -> None:
    assert messages_of(data) == messages


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"101 " + b"x" * 101, "A message has more than 100 bytes"),
        (b"<1>" + b"x" * 200, "A message has more than 100 bytes"),
        (b"1" * 30, "A message begins with b'1111111111'"),
        (b"12x <1>a", "A message begins with b'12x'"),
    ],
)
def test_what_is_no_message_ends_the_connection(data: bytes, message: str) -> None:
    with pytest.raises(Usage, match=message):
        messages_of(data)


def test_datagrams_that_are_not_taken_are_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Of those that come at once as many are taken as may be in a second; what is taken is durable at the end."""
    writer = GroupWriter(lambda: opened(tmp_path))

    async def received() -> int:
        receiver = SyslogUdpReceiver(SyslogUdpListener(listen="127.0.0.1:0", max_rate=1), writer)
        await receiver.start()
        for number in range(50):
            receiver.take(b"<1>%d" % number, remote="h:1")
        await receiver.stop()
        return receiver.dropped

    try:
        dropped = asyncio.run(received())
    finally:
        writer.close()
    journal = opened(tmp_path)
    journal.close()
    assert (journal.durable + dropped, dropped > 0) == (50, True)
    assert f"syslog_udp: {dropped} messages were dropped" in caplog.text


def opened(directory: Path) -> Journal:
    return Journal(directory, now_us=lambda: time.time_ns() // 1_000, limits=JournalLimits(least_free_bytes=1))
