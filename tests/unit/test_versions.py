"""What a batch does to the versions of its keys, by a replay in memory of some thousand random changes."""

import random
from typing import Any

import pyarrow as pa
import pytest
from tests.unit.compared_target import CHANGES, PLACES, kept, random_changes, versions
from tests.unit.table_target import GONE

from penstock.core.deletes import with_deletes
from penstock.core.model import NEWEST_ROW_DIGEST, Position
from penstock.sink.table.history import Batch, changed_versions, with_history
from penstock.sink.table.target import Target
from penstock.spark.schema import arrow_schema

ROWS = arrow_schema(CHANGES)


def batch_of(rows: list[tuple[Any, ...]], sequence_by: str | None, position: int) -> Batch:
    named = [dict(zip(ROWS.names, row, strict=True)) for row in rows]
    plain = pa.RecordBatch.from_pylist(named, schema=ROWS)
    piece = with_deletes(plain, pa.array([row[1] == GONE for row in rows], pa.bool_()))
    like = Target(table="t", write="history", key=("id", "valid_from"), sequence_by=sequence_by)
    return Batch.of([piece], ROWS, like=like, position=Position(position), has_deletes=True)


@pytest.mark.parametrize("sequence_by", [None, "version"], ids=["stream", "time"])
def test_random_changes_equal_a_replay_in_memory(sequence_by: str | None) -> None:
    """The table gives no version that had ended before a batch, and one that does not change is not written."""
    for seed in range(60):
        chance, there, table = random.Random(seed), dict[Any, Any](), dict[Any, dict[str, Any]]()
        for position in range(1, chance.randrange(2, 9)):
            rows = random_changes(chance, deletes=True)
            kept(there, rows, position, sequence_by=sequence_by, deletes=True)
            batch = batch_of(rows, sequence_by, position)
            since = {row["id"]: row["valid_from"] for row in batch.earliest().to_pylist()}
            read = [each for each in table.values() if each["id"] in since]
            read = [each for each in read if each["valid_to"] is None or each["valid_to"] >= since[each["id"]]]
            found = pa.Table.from_pylist(read, schema=with_history(ROWS, sequence_by))
            written = changed_versions(batch, found, NEWEST_ROW_DIGEST).to_pylist()
            keys = [(each["id"], each["valid_from"]) for each in written]
            assert len(set(keys)) == len(keys)
            assert all(table.get(key) != each for key, each in zip(keys, written, strict=True)), seed
            table |= zip(keys, written, strict=True)
            assert sorted(map(str, map(tuple, (each.values() for each in table.values())))) == sorted(
                map(str, versions(there).elements())
            ), (seed, position)


def test_places_in_the_stream_grow_with_batches_and_rows() -> None:
    times = [batch_of([(1, "a", 1), (1, "b", 1)], None, position).times.to_pylist() for position in (1, 2)]
    assert times == [[1 << PLACES, (1 << PLACES) + 1], [2 << PLACES, (2 << PLACES) + 1]]


def test_a_batch_without_rows() -> None:
    batch = batch_of([], "version", 1)
    assert len(batch.earliest()) == 0
    assert len(changed_versions(batch, with_history(ROWS, "version").empty_table(), NEWEST_ROW_DIGEST)) == 0
