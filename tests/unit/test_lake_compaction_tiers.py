"""Which small files a round of compaction takes: what a round writes does not grow with the table."""

import random
from contextlib import closing
from pathlib import Path

import pytest
from tests.unit.maintained_lake import MaintainedLake

from penstock.sink.lake.compaction import _worth_it
from penstock.sink.lake.log import TableFile

BATCH_BYTES, ROUNDS, BATCHES = 4_000, 2_000, 10


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_larger_file_waits_until_the_smaller_ones_are_worth_it(tmp_path: Path, kind: str) -> None:
    table = MaintainedLake(tmp_path, kind)

    def deliver(ident: int, characters: int) -> None:
        table.deliver((ident, random.Random(ident).randbytes(characters // 2).hex()))

    with closing(table.bench):
        deliver(1, characters=40_000)
        deliver(2, characters=40_000)
        [large] = table.active()
        for ident in range(3, 7):
            deliver(ident, characters=8)
            assert large in table.active()
        assert len(table.active()) == 2
        deliver(7, characters=60_000)
        assert len(table.active()) == 1
        assert sorted(ident for ident, _ in table.content("id", "name").elements()) == list(range(1, 8))
        assert table.verify().ok


def test_a_row_is_written_again_as_often_as_there_are_tiers() -> None:
    """Batches of about one size. Taken in every round, it would be written again a thousand times."""
    sizes, written, most = list[int](), 0, 0
    draw = random.Random(1)
    for _ in range(ROUNDS):
        sizes += [BATCH_BYTES + draw.randrange(100) for _ in range(BATCHES)]
        taken = taken_of(sizes)
        written += sum(taken)
        for size in taken:
            sizes.remove(size)
        sizes.append(sum(taken))
        most = max(most, len(sizes))
    assert written < 10 * ROUNDS * BATCHES * BATCH_BYTES
    assert most <= 12


@pytest.mark.parametrize(
    ("sizes", "taken"),
    [
        ([], []),
        ([5], []),
        ([5, 5], [5, 5]),
        ([5, 11], []),
        ([1, 9, 9], [1, 9, 9]),
        ([1, 1, 1, 100], [1, 1, 1]),
        ([1, 1, 50, 100], [1, 1, 50, 100]),
    ],
)
def test_which_are_taken(sizes: list[int], taken: list[int]) -> None:
    assert taken_of(sizes) == taken


def taken_of(sizes: list[int]) -> list[int]:
    ascending = [TableFile(path=str(place), size_bytes=size, values={}) for place, size in enumerate(sorted(sizes))]
    return [file.size_bytes for file in _worth_it(ascending)]
