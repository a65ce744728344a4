"""Rows of the simulated world, which differ from attempt to attempt, as `rand()` and `uuid()` make them."""

from dataclasses import dataclass

from penstock.core.model import DIGEST_MODULUS, Totals

_PRIME = 0x9E37_79B9_7F4A_7C15


@dataclass(frozen=True, slots=True, order=True)
class Row:
    """Row `number` of the source, with the salt of the attempt that staged it."""

    number: int
    salt: int


def totals_of(rows: tuple[Row, ...]) -> Totals:
    """Return the totals that a stage writer would count."""
    digest = sum((row.number + 1) * _PRIME ^ row.salt for row in rows) % DIGEST_MODULUS
    return Totals(rows=len(rows), files=1, size_bytes=16 * len(rows), digest=digest)


def to_bytes(rows: tuple[Row, ...]) -> bytes:
    """Return the rows as the content of an inline piece."""
    return ",".join(f"{row.number}:{row.salt}" for row in rows).encode()


def from_bytes(data: bytes) -> tuple[Row, ...]:
    """Return the rows of an inline piece."""
    pairs = (pair.split(":") for pair in data.decode().split(","))
    return tuple(Row(int(number), int(salt)) for number, salt in pairs)
