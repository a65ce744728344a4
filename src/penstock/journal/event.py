"""What a client pushes, and what the journal makes of it."""

from dataclasses import dataclass

LARGEST_EVENT = 64 << 20
"""Bytes that an event may have with key, headers and names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One pushed event. `number` is the producer's own: 1, 2, 3, without gaps; None where it does not count.

    `producer` and `remote` (the client's address) are names of at most 255 bytes.
    """

    value: bytes
    key: bytes | None = None
    headers: tuple[tuple[str, bytes], ...] = ()
    producer: str | None = None
    number: int | None = None
    remote: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """An event in the journal. `sequence` counts its events from 0, without gaps."""

    sequence: int
    received_at_us: int
    event: Event


@dataclass(frozen=True, slots=True)
class Receipt:
    """The answer for one event: its place in the journal. `sequence` is None for a repeat whose place is not known any more."""

    sequence: int | None
    is_repeat: bool = False
