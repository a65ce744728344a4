"""Whether readers of an Iceberg table find all that a file has, where it was written: by numbers, at any depth."""

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.sink.parquet.field_ids import has_numbers, with_field_ids

SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "texts": pa.list_(pa.string()),
        "counts": pa.map_(pa.string(), pa.int32()),
        "points": pa.list_(pa.struct({"x": pa.int64(), "y": pa.int64()})),
    }
)
IDS = {
    "id": 1,
    "texts": 2,
    "texts.element": 3,
    "counts": 4,
    "counts.key": 5,
    "counts.value": 6,
    "points": 7,
    "points.element": 8,
    "points.element.x": 9,
    "points.element.y": 10,
}


def read_back(schema: "pa.Schema") -> "pa.Schema":
    with pa.BufferOutputStream() as stream:
        pq.write_table(schema.empty_table(), stream)
        return pq.ParquetFile(io.BytesIO(stream.getvalue().to_pybytes())).schema_arrow


@pytest.mark.parametrize("later", [{}, {"more": 11}], ids=["same", "more"])
def test_a_file_whose_columns_the_table_numbers_as_then(later: dict[str, int]) -> None:
    assert has_numbers(read_back(with_field_ids(SCHEMA, IDS)), IDS | later)


@pytest.mark.parametrize(
    "now",
    [
        {"id": 11},
        {"texts.element": 11},
        {"counts.value": 11},
        {"points.element.x": 10, "points.element.y": 9},
    ],
    ids=["anew", "an element anew", "a value anew", "names changed places"],
)
def test_a_file_whose_columns_it_numbers_otherwise(now: dict[str, int]) -> None:
    assert not has_numbers(read_back(with_field_ids(SCHEMA, IDS)), IDS | now)


def test_a_file_with_a_column_that_was_renamed_or_removed() -> None:
    assert not has_numbers(read_back(with_field_ids(SCHEMA, IDS)), {path: at for path, at in IDS.items() if path != "id"})


def test_a_file_without_numbers() -> None:
    assert not has_numbers(read_back(SCHEMA), IDS)
