"""Whether a batch has each key once is known after its rows have passed; in doubt it has not."""

import pyarrow as pa
import pytest

from penstock.sink.table import batch_keys
from penstock.sink.table.batch_keys import BatchKeys


def distinct(*batches, key=("id",)):
    keys = BatchKeys(key)
    passed = list(keys.seen(iter([pa.RecordBatch.from_pydict(columns) for columns in batches])))
    assert [batch.num_rows for batch in passed] == [len(next(iter(columns.values()))) for columns in batches]
    return keys.are_distinct()


def test_keys_of_all_pieces_are_compared():
    assert distinct({"id": [1, 2], "name": ["a", "a"]}, {"id": [3], "name": ["a"]})


def test_a_key_that_comes_again_is_seen():
    assert not distinct({"id": [1, 2], "name": ["a", "b"]}, {"id": [2], "name": ["c"]})


def test_all_columns_of_a_key_count_however_they_are_written():
    rows = {"ID": [1, 1], "Day": ["mo", "tu"], "name": ["a", "a"]}
    assert distinct(rows, key=("day", "id"))
    assert not distinct(rows, key=("id",))


@pytest.mark.parametrize("rows", [[], [{"id": [0.0, 1.0]}]], ids=["nothing", "floats"])
def test_no_rows_and_floats_are_left_to_the_database(rows):
    assert not distinct(*rows)


def test_many_rows_are_left_to_the_database(monkeypatch):
    monkeypatch.setattr(batch_keys, "_MOST_ROWS", 2)
    assert distinct({"id": [1, 2]})
    assert not distinct({"id": [1, 2]}, {"id": [3]})
