"""Partition transforms of Iceberg in the tasks, which need no library of Iceberg: whole columns at once, by Arrow and NumPy.

Values are those of the format's specification (https://iceberg.apache.org/spec/#partition-transforms). Tests compare them with
the library's. NULL stays NULL.
"""

from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.partition_term import PartitionTerm

Words: TypeAlias = npt.NDArray[np.uint32]
Numbers: TypeAlias = npt.NDArray[np.int64]

_UNITS: Final = {"years": "Y", "months": "M", "days": "D", "hours": "h"}


def kind_of(function: str, source: "pa.DataType") -> "pa.DataType | None":
    """Return the type of the values that the function makes of such a column; None for a type that it does not take."""
    kind = pa.types
    if function == "hours":
        return pa.int32() if kind.is_timestamp(source) else None
    if function in _UNITS:
        fits = kind.is_timestamp(source) or kind.is_date32(source)
        return (pa.date32() if function == "days" else pa.int32()) if fits else None
    if function == "bucket" and (kind.is_timestamp(source) or kind.is_date32(source)):
        return pa.int32()
    if not (_is_bytes(source) or kind.is_signed_integer(source) or kind.is_decimal128(source)):
        return None
    if function == "bucket":
        return pa.int32()
    return pa.int32() if kind.is_signed_integer(source) and source.bit_width < 64 else source


def transformed(term: PartitionTerm, column: "pa.Array") -> "pa.Array":
    """Return the value of the term for each value of the column. Raises pa.ArrowInvalid for one that has no such value."""
    kind = kind_of(term.function, column.type)
    assert kind is not None
    if term.function in _UNITS:
        return _masked(_times(column, _UNITS[term.function]), column).cast(pa.int32()).cast(kind)
    if term.function == "bucket":
        return _masked((_hashes(column) & np.uint32(0x7FFFFFFF)).astype(np.int64) % term.number, column).cast(kind)
    return _truncated(column, term.number, kind)


def _times(column: "pa.Array", unit: str) -> Numbers:
    """Return how many whole units of the calendar lie between 1970 and the values, below zero for those before."""
    there = "D" if pa.types.is_date32(column.type) else column.type.unit
    return _whole(column).view(f"M8[{there}]").astype(f"M8[{unit}]").astype(np.int64)


def _truncated(column: "pa.Array", width: int, kind: "pa.DataType") -> "pa.Array":
    if _is_text(kind):
        return pc.utf8_slice_codeunits(column, 0, width)
    if _is_bytes(kind):
        return pc.binary_slice(column, 0, width)
    if pa.types.is_decimal(kind):
        return _each(column, lambda value: _rescaled(_unscaled(value) // width * width, kind.scale), kind)
    values = _whole(column)
    floors = values - values % width
    if (floors > values).any():
        raise pa.ArrowInvalid(f"a number has no multiple of {width} below it")
    return _masked(floors, column).cast(kind)


def _each(column: "pa.Array", function: Callable[[Any], Any], kind: "pa.DataType") -> "pa.Array":
    """Return what the function makes of each value; it is called once for equal ones."""
    encoded = column.dictionary_encode()
    return pa.array([function(value) for value in encoded.dictionary.to_pylist()], kind).take(encoded.indices)


def _unscaled(value: Decimal) -> int:
    sign, digits, _ = value.as_tuple()
    whole = int("".join(map(str, digits)))
    return -whole if sign else whole


def _rescaled(unscaled: int, scale: int) -> Decimal:
    """Return the number, however many digits it has: arithmetic rounds to those of a context."""
    return Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -scale))


def _shortest(value: Decimal) -> bytes:
    """Return the unscaled number as bytes, the highest first, as few as hold it with its sign."""
    unscaled = _unscaled(value)
    return unscaled.to_bytes((unscaled if unscaled >= 0 else ~unscaled).bit_length() // 8 + 1, "big", signed=True)


def _is_text(kind: "pa.DataType") -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_bytes(kind: "pa.DataType") -> bool:
    return _is_text(kind) or bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _whole(column: "pa.Array") -> Numbers:
    """Return the values as whole numbers, zero for NULL."""
    narrow = column.cast(pa.int32()) if pa.types.is_date32(column.type) else column
    return np.array(narrow.cast(pa.int64()).fill_null(0), dtype=np.int64)


def _masked(values: Numbers, column: "pa.Array") -> "pa.Array":
    return pa.array(values, mask=np.asarray(column.is_null()))


# --- Murmur3, the 32 bits of x86, seed 0: the hash of `bucket`


def _hashes(column: "pa.Array") -> Words:
    """Return the hash of each value. Whole numbers, dates and times are hashed as 8 bytes, the lowest first."""
    if pa.types.is_decimal(column.type):
        column = _each(column, _shortest, pa.binary())
    if not _is_bytes(column.type):
        size = np.full(len(column), 8)
        return _murmur3(_whole(column).astype("<i8").view(np.uint8), np.arange(len(column)) * 8, size)
    column = column.cast(pa.binary() if _is_text(column.type) else column.type).cast(pa.large_binary())
    _, places, data = column.buffers()
    bounds = (
        np.frombuffer(places, np.int64)[column.offset : column.offset + len(column) + 1] if len(column) else np.zeros(1, np.int64)
    )
    return _murmur3(np.frombuffer(data or b"", np.uint8), bounds[:-1], np.diff(bounds))


def _murmur3(data: npt.NDArray[np.uint8], starts: Numbers, sizes: Numbers) -> Words:
    """Return the hash of each piece of `data`, block after block of all pieces that have one."""
    found = np.zeros(len(sizes), np.uint32)
    for end in range(4, int(sizes.max(initial=0)) + 1, 4):
        rows = np.flatnonzero(sizes >= end)
        found[rows] = _turned(found[rows] ^ _scrambled(_word(data, starts[rows] + end - 4, 4)), 13) * np.uint32(5) + np.uint32(
            0xE6546B64
        )
    for size in (1, 2, 3):
        rows = np.flatnonzero(sizes % 4 == size)
        found[rows] ^= _scrambled(_word(data, starts[rows] + sizes[rows] - size, size))
    found ^= sizes.astype(np.uint32)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        found = (found ^ (found >> np.uint32(shift))) * np.uint32(factor)
    return found ^ (found >> np.uint32(16))


def _word(data: npt.NDArray[np.uint8], places: Numbers, size: int) -> Words:
    """Return numbers of so many bytes, the lowest first."""
    words = np.zeros(len(places), np.uint32)
    for at in range(size):
        words |= data[places + at].astype(np.uint32) << np.uint32(8 * at)
    return words


def _scrambled(words: Words) -> Words:
    return _turned(words * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)


def _turned(words: Words, bits: int) -> Words:
    return (words << np.uint32(bits)) | (words >> np.uint32(32 - bits))
