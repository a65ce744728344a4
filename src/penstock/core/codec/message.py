"""The message a task returns to the driver: the pieces it staged and how many rows it read. Never stored."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from penstock.core.codec.document import decode, encode_document
from penstock.core.codec.entry import of_staged, to_staged
from penstock.core.codec.fields import integer, items, optional
from penstock.core.model import Json, Staged

_KIND, _VERSION = "penstock.message", 2


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskMessage:
    """One task's result: staged pieces, rows read, their size in Arrow, and requests sent (None: nothing counts them)."""

    pieces: tuple[Staged, ...]
    rows: int
    size_bytes: int
    requests: int | None


def encode_message(pieces: Sequence[Staged], *, rows: int, size_bytes: int, requests: int | None) -> bytes:
    """Return the bytes that a task yields."""
    staged: list[Json] = [of_staged(piece) for piece in pieces]
    fields: dict[str, Json] = {"pieces": staged, "rows": rows, "size_bytes": size_bytes, "requests": requests}
    return encode_document(_KIND, _VERSION, fields)


def decode_message(data: bytes) -> TaskMessage:
    """Return a task's message. Raises LedgerMismatch for other bytes, FormatTooNew if executors run a newer Penstock."""
    return decode(data, kind=_KIND, where="A task's message", readers={1: _message, _VERSION: _message})


def _message(fields: dict[str, Any]) -> TaskMessage:
    return TaskMessage(
        pieces=tuple(to_staged(item) for item in items(fields["pieces"])),
        rows=integer(fields["rows"]),
        size_bytes=integer(fields["size_bytes"]),
        requests=optional(integer, fields.get("requests")),
    )
