"""XXH64 of many values at once, each with a seed of its own: steps of NumPy for all rows, or a call of the library for each.

Rows of one length take every step together, without a look at which of them need it: a third to a tenth of the time.
"""

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from xxhash import xxh64_intdigest

Words: TypeAlias = npt.NDArray[np.uint64]
Bytes: TypeAlias = npt.NDArray[np.uint8]
Places: TypeAlias = npt.NDArray[np.int64]
_WordsAt: TypeAlias = Callable[[str, int], Words]
"""Reads a word of each row: of what type, and how far from the row's begin."""

P1, P2 = np.uint64(0x9E3779B185EBCA87), np.uint64(0xC2B2AE3D27D4EB4F)
P3, P4 = np.uint64(0x165667B19E3779F9), np.uint64(0x85EBCA77C2B2AE63)
P5 = np.uint64(0x27D4EB2F165667C5)
STRIPE_BYTES = 32
_LANE_BASES = (np.uint64(0x60EA27EEADC0B5D6), P2, np.uint64(0), np.uint64(0x61C8864E7A143579))
_LANE_BITS = (1, 7, 12, 18)
_AFTER = {8: (27, P1, P4), 4: (23, P2, P3), 1: (11, P1, np.uint64(0))}
"""Bits to rotate by, factor and summand after a word of so many bytes was folded in."""
_ADJOINING_BYTES = 512
"""Bytes of rows of one length, one behind the other, up to which NumPy's steps take less time than the library."""
_GROUP_ROWS = 2_048
"""Rows of a length, on average, from which on each length by itself takes less time than all of them step by step."""


# --- steps


def rotate(words: Words, bits: int) -> Words:
    """Return the words rotated to the left; `words` are used up."""
    high = words << np.uint64(bits)
    words >>= np.uint64(64 - bits)
    high |= words
    return high


def finish(words: Words) -> Words:
    """Return the hashes for these states, in their place."""
    words ^= words >> np.uint64(33)
    words *= P2
    words ^= words >> np.uint64(29)
    words *= P3
    words ^= words >> np.uint64(32)
    return words


def mixed_long(words: Words) -> Words:
    """Return what of a word of 8 bytes is folded into a state."""
    return rotate(words * P2, 31) * P1


def advanced(folded: Words, width: int) -> Words:
    """Return the states after a word of `width` bytes, which is folded into `folded` already; these are used up."""
    bits, factor, summand = _AFTER[width]
    folded = rotate(folded, bits)
    folded *= factor
    folded += summand
    return folded


def mix_long(state: Words, values: Words) -> Words:
    """Return the states after a word of 8 bytes; `state` is used up."""
    state ^= mixed_long(values)
    return advanced(state, 8)


def mix_int(state: Words, values: Words) -> Words:
    """Return the states after a word of 4 bytes; `state` is used up."""
    state ^= values * P1
    return advanced(state, 4)


def _mix_byte(state: Words, values: Words) -> Words:
    state ^= values * P5
    return advanced(state, 1)


def words_at(data: Bytes, data_type: str, places: Places) -> Words:
    """Return the words of a type such as `<u8` that begin at these places."""
    width = int(data_type[-1])
    anywhere = np.ndarray(shape=(len(data) - width + 1,), dtype=data_type, buffer=data, strides=(1,))
    return anywhere[places].astype(np.uint64)


# --- ranges of bytes


def hash_bytes(data: Bytes, starts: Places, lengths: Places, seeds: Words) -> Words:
    """Return XXH64 of `data[start : start + length]` for each row."""
    longest = int(lengths.max(initial=0))
    is_one_length = longest == lengths.min(initial=longest)
    adjoining = is_one_length and longest <= _ADJOINING_BYTES and _adjoin(starts, longest)
    if _are_few_or_long(lengths, longest, adjoining=adjoining):
        return _hash_one_by_one(data, starts, lengths, seeds)
    if is_one_length:
        return _hash_of_one_length(data, starts, longest, seeds, adjoining=adjoining)
    return _hash_longest_first(data, starts, lengths, longest, seeds)


def _are_few_or_long(lengths: Places, longest: int, *, adjoining: bool) -> bool:
    """Whether a call of the library for each row takes less time than NumPy's steps for all of them.

    There are as many steps as the longest row needs. The factors were measured with 60 to 16,384 rows of 3 to 2,000 bytes.
    """
    few = 256 + 4 * longest
    return len(lengths) < (few if adjoining else few + int(lengths.sum()) // 128)


def _adjoin(starts: Places, length: int) -> bool:
    """Whether each row of this length begins where the one before ends."""
    return bool((np.diff(starts) == length).all())


def _hash_one_by_one(data: Bytes, starts: Places, lengths: Places, seeds: Words) -> Words:
    view, ranges = data.data, zip(starts.tolist(), (starts + lengths).tolist(), seeds.tolist(), strict=True)
    return np.array([xxh64_intdigest(view[start:end], seed) for start, end, seed in ranges], np.uint64)


def _hash_longest_first(data: Bytes, starts: Places, lengths: Places, longest: int, seeds: Words) -> Words:
    order = _longest_first(lengths, longest)
    starts, lengths, seeds = starts[order], lengths[order], seeds[order]
    begins = np.flatnonzero(np.diff(lengths, prepend=-1))
    hashed = np.empty_like(seeds)
    if len(lengths) < _GROUP_ROWS * len(begins):
        hashed[order] = _hash_step_by_step(data, starts, lengths, seeds)
        return hashed
    for begin, end in zip(begins, [*begins[1:], len(lengths)], strict=True):
        rows = slice(begin, end)
        hashed[order[rows]] = _hash_of_one_length(data, starts[rows], int(lengths[begin]), seeds[rows], adjoining=False)
    return hashed


def _longest_first(lengths: Places, longest: int) -> Places:
    """Return the order of the rows by length. NumPy sorts numbers of 16 bits by their digits, in a sixth of the time."""
    shorter = longest - lengths
    return np.argsort(shorter.astype(np.uint16) if longest < 1 << 16 else shorter, kind="stable")


def _hash_of_one_length(data: Bytes, starts: Places, length: int, seeds: Words, *, adjoining: bool) -> Words:
    """Return the hashes of rows that are all of this length; `adjoining` if each begins where the one before ends."""
    word = _reader(data, starts, length, adjoining=adjoining)
    state = _state_after_stripes(word, length, seeds) if length >= STRIPE_BYTES else seeds + P5
    state += np.uint64(length)
    place = length & -STRIPE_BYTES
    while place + 8 <= length:
        state, place = mix_long(state, word("<u8", place)), place + 8
    if length & 4:
        state, place = mix_int(state, word("<u4", place)), place + 4
    while place < length:
        state, place = _mix_byte(state, word("<u1", place)), place + 1
    return finish(state)


def _reader(data: Bytes, starts: Places, length: int, *, adjoining: bool) -> _WordsAt:
    """Return what reads words of rows of one length. Where one row adjoins the next, no place is looked up."""
    if len(starts) == 0 or not adjoining:
        return lambda kind, place: words_at(data, kind, starts + place)
    first, count = int(starts[0]), len(starts)
    return lambda kind, place: np.ndarray((count,), kind, data, first + place, (length,)).astype(np.uint64)


def _state_after_stripes(word: _WordsAt, length: int, seeds: Words) -> Words:
    lanes = [seeds + base for base in _LANE_BASES]
    for place in range(0, length & -STRIPE_BYTES, STRIPE_BYTES):
        for lane in range(4):
            lanes[lane] += word("<u8", place + 8 * lane) * P2
            lanes[lane] = rotate(lanes[lane], 31)
            lanes[lane] *= P1
    return _merged(lanes)


def _merged(lanes: list[Words]) -> Words:
    merged = np.zeros_like(lanes[0])
    for lane, bits in zip(lanes, _LANE_BITS, strict=True):
        merged += rotate(lane.copy(), bits)
    for lane in lanes:
        merged ^= mixed_long(lane)
        merged *= P1
        merged += P4
    return merged


# --- rows of many lengths, the longest one first


def _hash_step_by_step(data: Bytes, starts: Places, lengths: Places, seeds: Words) -> Words:
    """Each step runs once, for all rows that are long enough."""
    state = seeds + P5
    _stripes(data, starts, lengths, seeds, state)
    state += lengths.astype(np.uint64)
    places = starts + (lengths & -32)
    _whole_words(data, places, starts + lengths, state)
    places = starts + (lengths & -8)
    _half_words(data, places, lengths, state)
    _single_bytes(data, places + (lengths & 4), starts + lengths, state)
    return finish(state)


def at_least(lengths: Places, length: int) -> int:
    """Return how many of `lengths`, which are in descending order, are at least `length`."""
    return len(lengths) - int(np.searchsorted(lengths[::-1], length, side="left"))


def _stripes(data: Bytes, starts: Places, lengths: Places, seeds: Words, state: Words) -> None:
    count = at_least(lengths, STRIPE_BYTES)
    if count == 0:
        return
    lanes = [seeds[:count] + base for base in _LANE_BASES]
    for stripe in range(int(lengths[0]) // STRIPE_BYTES):
        active = at_least(lengths[:count], STRIPE_BYTES * (stripe + 1))
        for lane in range(4):
            words = words_at(data, "<u8", starts[:active] + (STRIPE_BYTES * stripe + 8 * lane))
            lanes[lane][:active] = rotate(lanes[lane][:active] + words * P2, 31) * P1
    state[:count] = _merged(lanes)


def _whole_words(data: Bytes, places: Places, ends: Places, state: Words) -> None:
    for word in range(3):
        active = np.flatnonzero(places + 8 * (word + 1) <= ends)
        if len(active) == 0:
            return
        state[active] = mix_long(state[active], words_at(data, "<u8", places[active] + 8 * word))


def _half_words(data: Bytes, places: Places, lengths: Places, state: Words) -> None:
    active = np.flatnonzero(lengths & 4)
    if len(active):
        state[active] = mix_int(state[active], words_at(data, "<u4", places[active]))


def _single_bytes(data: Bytes, places: Places, ends: Places, state: Words) -> None:
    for step in range(3):
        active = np.flatnonzero(places + step < ends)
        if len(active) == 0:
            return
        state[active] = _mix_byte(state[active], data[places[active] + step].astype(np.uint64))
