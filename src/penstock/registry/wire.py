"""A registry's address and schemas as plain values, and Confluent's wire format, in which a value names its schema.

A value is a byte 0, the schema's id in four bytes, then the encoded value:

https://docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/index.html#wire-format
"""

import struct
from dataclasses import dataclass, field

MAGIC = 0
HEAD = 5
"""Bytes before the encoded value."""
_HEAD = struct.Struct(">BI")


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryPlace:
    """Address and credentials of one registry, with all its `urls`. Picklable, since tasks receive it.

    `name` stands for it in messages. Files are paths on every machine that sends requests.
    """

    urls: tuple[str, ...]
    name: str
    user: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None
    timeout_s: float = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """A schema as the registry returns it, with all schemas that it refers to, each before those that refer to it."""

    schema_id: int
    kind: str
    text: str
    references: "tuple[Reference, ...]" = ()
    version: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A schema, and the name by which another one imports it."""

    name: str
    text: str


class Undecodable(Exception):
    """One value cannot be decoded, and why. `schema_id` is the id that it names, None if it names none.

    `remedy`: what to do, where the general advice for such records does not help.
    """

    def __init__(self, reason: str, *, schema_id: int | None = None, unknown: bool = False, remedy: str | None = None) -> None:
        text = reason.encode("utf-8", "backslashreplace").decode()  # it may quote a lone surrogate, which Arrow refuses
        super().__init__(text)
        self.reason = text
        self.schema_id = schema_id
        self.remedy = remedy
        self.unknown = unknown
        """Whether the registry has no such schema, which may change."""


def first_line(error: Exception) -> str:
    """Return the first line of a library's message, up to 300 characters without a full stop, as a part of a sentence."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300].rstrip(".")


def schema_id_of(value: bytes) -> int:
    """Return the schema's id in front of `value`. Raises Undecodable."""
    if len(value) < HEAD:
        raise Undecodable(f"it has {len(value)} bytes, expected {HEAD} of a schema's id and more")
    magic, schema_id = _HEAD.unpack_from(value)
    if magic != MAGIC:
        raise Undecodable(f"it begins with the byte 0x{magic:02x}, expected 0x00 and a schema's id")
    return int(schema_id)


def framed(schema_id: int, value: bytes) -> bytes:
    """Return `value` with the schema's id in front."""
    return _HEAD.pack(MAGIC, schema_id) + value
