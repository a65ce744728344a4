"""Header values of AMQP as the publisher wrote them: pika cuts fractions, and ends its connection at a year above 9999."""

import struct
from datetime import datetime, timezone

from pika import data

_FRACTIONS = {b"f": struct.Struct(">f"), b"d": struct.Struct(">d")}
_TIME, _SECONDS = b"T", struct.Struct(">Q")
_pikas = data.decode_value


def read_values_exactly() -> None:
    """Let pika decode headers by `decode_value`, in this process."""
    data.decode_value = decode_value


def decode_value(encoded: bytes, offset: int) -> tuple[object, int]:
    """Return the value at `offset`, and where the next one begins. A time that no `datetime` holds is its number of seconds."""
    kind, offset_of_value = encoded[offset : offset + 1], offset + 1
    if (fraction := _FRACTIONS.get(kind)) is not None:
        return fraction.unpack_from(encoded, offset_of_value)[0], offset_of_value + fraction.size
    if kind != _TIME:
        found: tuple[object, int] = _pikas(encoded, offset)
        return found
    [seconds] = _SECONDS.unpack_from(encoded, offset_of_value)
    return _time_of(seconds), offset_of_value + _SECONDS.size


def _time_of(seconds: int) -> "datetime | int":
    try:
        return datetime.fromtimestamp(seconds, timezone.utc)
    except (ValueError, OverflowError, OSError):
        return seconds
