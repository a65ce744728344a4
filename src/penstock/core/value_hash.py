"""Spark's `xxhash64` of values that are not nested, vectorised: each row's seed becomes the hash of its value.

The result for a null is arbitrary; `penstock.core.row_hash` restores the seed there.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.core.xxh64 import (
    P1,
    P5,
    STRIPE_BYTES,
    Bytes,
    Places,
    Words,
    advanced,
    finish,
    hash_bytes,
    mix_int,
    mix_long,
    mixed_long,
    words_at,
)

Selected: TypeAlias = "Places | slice"
"""Which values of a column, one for each seed."""
Fold: TypeAlias = Callable[[Selected, Words], Words]
WordHash: TypeAlias = Callable[[Any, Words], Words]

_INT_BASE, _LONG_BASE = P5 + np.uint64(4), P5 + np.uint64(8)
_MAX_LONG_DIGITS = 18
_TWO_WORDS = np.dtype((np.uint64, 2))


def fold_of_values(column: "pa.Array") -> Fold:
    """Return what hashes the values at some places, each with its own seed; it asks Arrow nothing, however often it is called.

    Raises TypeError for nested types and for types that Spark lacks.
    """
    for kinds, hash_words in ((_LONGS, hash_long), (_INTS, hash_int)):
        for is_kind, words in kinds:
            if is_kind(column.type):
                return _fold_of_words(words(column), hash_words)
    for is_kind, fold_of in _OTHERS:
        if is_kind(column.type):
            return fold_of(column)
    raise TypeError(f"Spark has no type for Arrow's {column.type}, so its hash is not defined")


def _fold_of_words(words: npt.NDArray[Any], hash_words: WordHash) -> Fold:
    return lambda places, seeds: hash_words(words[places], seeds)


def hash_long(values: Words, seeds: Words) -> Words:
    """Return the hash of each long with its row's seed. A single value is broadcast to all rows."""
    return finish(mix_long(seeds + _LONG_BASE, values))


def hash_int(values: npt.NDArray[np.uint32], seeds: Words) -> Words:
    """Return the hash of each 32-bit integer with its row's seed."""
    return finish(mix_int(seeds + _INT_BASE, values.astype(np.uint64)))


# --- numbers of fixed width


def _values(column: "pa.Array", data_type: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return the values of a fixed-width column as they lie in memory; those at nulls are arbitrary."""
    _, data = column.buffers()
    if data is None or len(column) == 0:  # of which Arrow may keep a buffer of any size
        return np.zeros(len(column), data_type)
    return np.frombuffer(data, data_type, count=column.offset + len(column))[column.offset :]


def _longs(column: "pa.Array") -> Words:
    return _values(column, np.uint64)


def _ints(column: "pa.Array") -> npt.NDArray[np.uint32]:
    return _values(column, np.uint32)


def _small_ints(column: "pa.Array") -> npt.NDArray[np.uint32]:
    data_type = np.int8 if column.type.bit_width == 8 else np.int16
    return _values(column, data_type).astype(np.int32).view(np.uint32)


def _booleans(column: "pa.Array") -> npt.NDArray[np.uint32]:
    return np.asarray(column.fill_null(fill_value=False)).astype(np.uint32)


def _floats(column: "pa.Array") -> npt.NDArray[np.uint32]:
    values = _values(column, np.float32)
    bits = np.where(values == 0, np.float32(0), values).view(np.uint32)
    return np.where(np.isnan(values), np.uint32(0x7FC00000), bits)


def _doubles(column: "pa.Array") -> Words:
    values = _values(column, np.float64)
    zeros, nans = values == 0, np.isnan(values)
    bits = np.where(zeros, np.float64(0), values).view(np.uint64) if zeros.any() else values.view(np.uint64)
    return np.where(nans, np.uint64(0x7FF8000000000000), bits) if nans.any() else bits


def _short_decimals(column: "pa.Array") -> Words:
    return _halves(column)[:, 0]


def _halves(column: "pa.Array") -> Words:
    """Return the lower and the upper 64 bits of each decimal."""
    if column.type.bit_width != 128:
        column = column.cast(pa.decimal128(column.type.precision, column.type.scale))
    return _values(column, _TWO_WORDS)


_INTERVAL = np.dtype([("months", "<u4"), ("days", "<u4"), ("nanoseconds", "<i8")])


def _fold_of_intervals(column: "pa.Array") -> Fold:
    return _fold_of_words(_values(column, _INTERVAL), _hash_intervals)


def _hash_intervals(values: npt.NDArray[Any], seeds: Words) -> Words:
    microseconds = (values["nanoseconds"] // 1000).view(np.uint64)
    return hash_int(values["months"], hash_int(values["days"], hash_long(microseconds, seeds)))


# --- decimals of more than 18 digits


def _fold_of_decimals(column: "pa.Array") -> Fold:
    return _fold_of_words(_halves(column), _hash_decimals)


def _hash_decimals(halves: npt.NDArray[np.uint64], seeds: Words) -> Words:
    """Hash the shortest two's complement of each 128-bit number, most significant byte first, as Java writes it."""
    big_endian = halves[:, ::-1].astype(">u8").view(np.uint8)
    signs = np.where(big_endian[:, :1] & 0x80, np.uint8(0xFF), np.uint8(0))
    first = np.argmax(np.concatenate([big_endian != signs, np.ones_like(signs, np.bool_)], axis=1), axis=1)
    first = np.minimum(first, 15)
    rows = np.arange(len(halves))
    needs_sign = ((big_endian[rows, first] ^ signs[:, 0]) & 0x80) != 0
    first = np.where(needs_sign, first - 1, first).astype(np.int64)
    return hash_bytes(big_endian.reshape(-1), rows * 16 + first, 16 - first, seeds)


# --- bytes of any length


def _fold_of_bytes(column: "pa.Array") -> Fold:
    if len(column) == 0:
        return lambda _, seeds: seeds
    values, starts, lengths = _byte_ranges(column)
    return lambda places, seeds: hash_bytes(values, starts[places], lengths[places], seeds)


def _byte_ranges(column: "pa.Array") -> tuple[Bytes, Places, Places]:
    """Return the bytes of all values, where each of these begins, and how long it is; of a null 0."""
    _, offsets, data = column.buffers()
    data_type = np.int64 if pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type) else np.int32
    ends = np.frombuffer(offsets, data_type)[column.offset : column.offset + len(column) + 1].astype(np.int64)
    lengths = np.diff(ends)
    if column.null_count:
        lengths = np.where(np.asarray(column.is_valid()), lengths, 0)
    return np.frombuffer(data or b"", np.uint8), ends[:-1], lengths


# --- texts and bytes of a dictionary


def is_of_bytes(dictionary: "pa.Array") -> bool:
    """Return whether `fold_of_dictionary` takes a dictionary: texts or bytes, none of them null."""
    return bool(dictionary.null_count == 0 and len(dictionary) and any(is_kind(dictionary.type) for is_kind in _TEXTS))


def fold_of_dictionary(column: "pa.DictionaryArray") -> Fold:
    """Return what hashes the values of a column that `is_of_bytes`, without writing them out one by one."""
    codes = np.asarray(column.indices.fill_null(0) if column.null_count else column.indices)
    data, starts, lengths = _byte_ranges(column.dictionary)
    if int(lengths.max()) >= STRIPE_BYTES or len(starts) > len(codes):
        return lambda places, seeds: hash_bytes(data, starts[codes[places]], lengths[codes[places]], seeds)
    steps, first = _steps_of(data, starts, lengths), lengths.astype(np.uint64) + P5
    return lambda places, seeds: _hash_by_steps(steps, seeds + first[codes[places]], codes[places])


def _steps_of(data: Bytes, starts: Places, lengths: Places) -> "list[_Step]":
    """Return what XXH64 does with values shorter than a stripe, and what of it depends on the value alone."""
    steps = list[_Step]()
    for word in range(3):
        steps.append(_step(lengths >= 8 * (word + 1), starts + 8 * word, data, "<u8", mixed_long))
    rest = starts + (lengths & -8)
    steps.append(_step((lengths & 4) != 0, rest, data, "<u4", lambda words: words * P1))
    rest = rest + (lengths & 4)
    for byte in range(3):
        steps.append(_step((lengths & 3) > byte, rest + byte, data, "<u1", lambda words: words * P5))
    return [step for step in steps if step.has is None or step.has.any()]


@dataclass(frozen=True, slots=True)
class _Step:
    """One step of XXH64: which values `has` it (None: all), the word that each folds in, and that word's `width` in bytes."""

    has: npt.NDArray[np.bool_] | None
    words: Words
    width: int


def _step(has: "npt.NDArray[np.bool_]", places: Places, data: Bytes, kind: str, mixed: Callable[[Words], Words]) -> _Step:
    words = np.zeros(len(has), np.uint64)
    if has.any():
        words[has] = mixed(words_at(data, kind, places[has]))
    return _Step(None if has.all() else has, words, int(kind[-1]))


def _hash_by_steps(steps: "list[_Step]", state: Words, codes: "npt.NDArray[Any]") -> Words:
    for step in steps:
        folded = advanced(state ^ step.words[codes], step.width)
        state = folded if step.has is None else np.where(step.has[codes], folded, state)
    return finish(state)


_types = pa.types
_TEXTS = (_types.is_string, _types.is_binary, _types.is_large_string, _types.is_large_binary)
_IsKind: TypeAlias = "Callable[[pa.DataType], bool]"
_LONGS: "tuple[tuple[_IsKind, Callable[[Any], Words]], ...]" = (
    (_types.is_int64, _longs),
    (_types.is_float64, _doubles),
    (_types.is_timestamp, lambda column: _longs(column.cast(pa.timestamp("us", column.type.tz)))),
    (lambda data_type: _types.is_decimal(data_type) and data_type.precision <= _MAX_LONG_DIGITS, _short_decimals),
    (_types.is_duration, lambda column: _longs(column.cast(pa.duration("us")))),
    (_types.is_time, lambda column: _longs(column.cast(pa.time64("ns")))),
)
_INTS: "tuple[tuple[_IsKind, Callable[[Any], npt.NDArray[np.uint32]]], ...]" = (
    (lambda data_type: _types.is_int32(data_type) or _types.is_date32(data_type), _ints),
    (lambda data_type: _types.is_int8(data_type) or _types.is_int16(data_type), _small_ints),
    (_types.is_float32, _floats),
    (_types.is_boolean, _booleans),
)
_OTHERS: "tuple[tuple[_IsKind, Callable[[Any], Fold]], ...]" = (
    (lambda data_type: any(is_kind(data_type) for is_kind in _TEXTS), _fold_of_bytes),
    (_types.is_decimal, _fold_of_decimals),
    (_types.is_interval, _fold_of_intervals),
    (_types.is_fixed_size_binary, lambda column: _fold_of_bytes(column.cast(pa.binary()))),
)
