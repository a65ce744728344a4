"""XXH64 of many values at once equals the library's, whatever way the lengths and places of the values make it go."""

import numpy as np
import pytest
from tests.seed import SEED
from xxhash import xxh64_intdigest

from penstock.core.xxh64 import hash_bytes

MANY = 5_000
"""Rows: enough that a few lengths are hashed each by itself, and many lengths step by step."""


def lengths_between(shortest: int, longest: int, rows: int) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    return np.random.default_rng(SEED).integers(shortest, longest, rows, endpoint=True).astype(np.int64)


@pytest.mark.parametrize("adjoining", [True, False])
@pytest.mark.parametrize("rows", [0, 1, 2, 300, MANY])
@pytest.mark.parametrize(
    ("shortest", "longest"),
    [*((length, length) for length in (0, 1, 3, 4, 7, 8, 15, 31, 32, 36, 63, 73, 500, 700)), (0, 1), (7, 8), (0, 40), (60, 75)],
)
def test_it_is_that_of_the_library(shortest: int, longest: int, rows: int, *, adjoining: bool) -> None:
    lengths = lengths_between(shortest, longest, rows)
    starts = np.cumsum(lengths) - lengths
    random = np.random.default_rng(SEED)
    data = random.integers(0, 256, int(lengths.sum()) + 3, dtype=np.uint8)
    seeds = random.integers(0, 2**64, rows, dtype=np.uint64)
    if not adjoining:
        order = random.permutation(rows)
        starts, lengths = starts[order], lengths[order]
    expected = [
        xxh64_intdigest(data[start : start + length].tobytes(), seed)
        for start, length, seed in zip(starts.tolist(), lengths.tolist(), seeds.tolist(), strict=True)
    ]
    found = hash_bytes(data, starts, lengths, seeds).tolist()
    wrong = [row for row, (one, other) in enumerate(zip(found, expected, strict=True)) if one != other]
    assert wrong[:5] == [], f"PENSTOCK_SEED={SEED}"  # not the lists: pytest takes minutes to show how they differ


def test_seeds_stay_as_they_are() -> None:
    seeds = np.arange(MANY, dtype=np.uint64)
    for lengths in (lengths_between(40, 40, MANY), lengths_between(4, 5, MANY), lengths_between(0, 40, MANY)):
        hash_bytes(np.zeros(int(lengths.sum()), np.uint8), np.cumsum(lengths) - lengths, lengths, seeds)
        assert (seeds == np.arange(MANY, dtype=np.uint64)).all()
