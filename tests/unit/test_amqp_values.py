"""Header values of AMQP are kept as the publisher wrote them."""

import struct
from datetime import datetime, timezone

from pika import data

from penstock.receive import amqp_values


def test_times_beyond_every_year_and_fractions_are_read(monkeypatch) -> None:
    monkeypatch.setattr(data, "decode_value", data.decode_value)
    amqp_values.read_values_exactly()
    milliseconds = 1_767_225_600_000
    table = b"".join(
        bytes([len(name)]) + name + value
        for name, value in (
            (b"late", b"T" + struct.pack(">Q", milliseconds)),
            (b"last", b"T" + struct.pack(">Q", 2**64 - 1)),
            (b"usual", b"T" + struct.pack(">Q", 1_767_225_600)),
            (b"half", b"d" + struct.pack(">d", 1.5)),
            (b"list", b"A" + struct.pack(">I", 10) + b"f" + struct.pack(">f", 0.25) + b"I" + struct.pack(">i", 7)),
        )
    )
    found, end = data.decode_table(struct.pack(">I", len(table)) + table, 0)
    assert end == 4 + len(table)
    usual = datetime(2026, 1, 1, tzinfo=timezone.utc)
    assert found == {"late": milliseconds, "last": 2**64 - 1, "usual": usual, "half": 1.5, "list": [0.25, 7]}
