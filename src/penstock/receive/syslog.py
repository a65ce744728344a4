"""Messages of syslog: how they follow one another on a TCP connection (RFC 6587), and the fields of their headers."""

import asyncio
import re
from collections.abc import Sequence

from penstock.errors import Usage
from penstock.journal.event import Event

_HIGHEST_PRIORITY = 191
_LENGTH_DIGITS = 9
_BETWEEN = (b"\n", b"\r", b"\0")
_PRIORITY = re.compile(rb"<(0|[1-9]\d{0,2})>")
_RFC5424 = re.compile(
    rb"[1-9]\d{0,2} (?P<timestamp>\S+) (?P<hostname>\S+) (?P<app_name>\S+) (?P<procid>\S+) (?P<msgid>\S+)(?: |$)"
)
_RFC3164 = re.compile(
    rb"(?P<timestamp>(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) [ \d]\d \d\d:\d\d:\d\d) "
    rb"(?:(?P<hostname>\S*[^\s:\]]) )?(?:(?P<app_name>[^\s:\[]+)(?:\[(?P<procid>[^\]\s]*)\])?:)?"
)
_NIL = b"-"


class SyslogFraming:
    """Octet counting and non-transparent framing; each message begins with a digit or not, which tells them apart."""

    def __init__(self, *, most_bytes: int) -> None:
        self._most_bytes = most_bytes

    async def read(self, reader: asyncio.StreamReader) -> Sequence[bytes]:
        """Return the next message, nothing at the end of the connection, where a torn message is none. Raises Usage."""
        try:
            first = await reader.readexactly(1)
            while first in _BETWEEN:
                first = await reader.readexactly(1)
            return [await (self._counted(first, reader) if first.isdigit() else self._line(first, reader))]
        except asyncio.IncompleteReadError:
            return ()

    async def _counted(self, digits: bytes, reader: asyncio.StreamReader) -> bytes:
        while (digit := await reader.readexactly(1)) != b" ":
            digits += digit
            if not digit.isdigit() or len(digits) > _LENGTH_DIGITS:
                raise Usage(f"A message begins with {digits!r}.", remedy="Begin it with <PRIORITY>, or its length and a blank.")
        if int(digits) > self._most_bytes:
            raise self._too_long()
        return await reader.readexactly(int(digits))

    async def _line(self, first: bytes, reader: asyncio.StreamReader) -> bytes:
        try:
            line = await reader.readuntil(b"\n")
        except asyncio.LimitOverrunError:
            raise self._too_long() from None
        return (first + line).rstrip(b"\r\n\0")

    def _too_long(self) -> Usage:
        return Usage(f"A message has more than {self._most_bytes} bytes.", remedy="Raise max_message.")

    def event(self, message: bytes, *, remote: str) -> Event:
        """Return the event of a message."""
        return event_of_message(message, remote=remote)


def event_of_message(message: bytes, *, remote: str) -> Event:
    """Return the event of a message as it was sent; headers are the fields of RFC 5424 or 3164 that are found in it."""
    return Event(value=message, headers=tuple(_fields(message)), remote=remote)


def _fields(message: bytes) -> list[tuple[str, bytes]]:
    priority = _PRIORITY.match(message)
    if priority is None or int(priority[1]) > _HIGHEST_PRIORITY:
        return []
    facility, severity = divmod(int(priority[1]), 8)
    fields = [("facility", b"%d" % facility), ("severity", b"%d" % severity)]
    header = _RFC5424.match(message, priority.end()) or _RFC3164.match(message, priority.end())
    found = {} if header is None else header.groupdict()
    return fields + [(name, value) for name, value in found.items() if value and value != _NIL]
