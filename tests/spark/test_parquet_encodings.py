"""Spark reads what is written in all encodings, with both of its readers."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.spark.lake import Lake

COLUMNS = """
    id; CAST(id % 100 AS BYTE) tiny; CAST(id AS SHORT) small; CAST(id AS INT) number; xxhash64(id) hashed; id % 2 = 0 even;
    CAST(id / 3 AS FLOAT) real; if(id % 9 = 0, double('NaN'), id / 7) wide; CAST(id / 4 AS DECIMAL(9,2)) price;
    CAST(id AS DECIMAL(18,2)) large; CAST(id AS DECIMAL(38,18)) huge; concat('ü-', hex(xxhash64(id))) unlike;
    concat('n', id % 5) like; CAST(concat('x', id) AS BINARY) raw; date_add(DATE'0001-01-01', CAST(id * 100 AS INT)) day;
    timestamp_micros(-62000000000000000 + id * 1001) old; timestamp_micros(1700000000000000 + id * 1001) moment;
    CAST(timestamp_micros(id * 7) AS TIMESTAMP_NTZ) wall; CAST(NULL AS BIGINT) nothing; if(id % 3 = 0, NULL, id) some;
    if(id % 3 = 0, NULL, array(id, NULL, id + 1)) list; transform(sequence(1, id % 3), x -> x * 0.5D) doubles;
    if(id % 5 = 0, NULL, named_struct('at', timestamp_micros(id), 'deep', named_struct('x', id / 3, 'n', CAST(id AS INT)))) pair;
    map(id, concat('v', id), id + 1, NULL) lookup; array(named_struct('k', id), NULL) structs
"""
GIVEN: dict[str, Any] = {
    "auto": "auto",
    "dictionary": "dictionary",
    "each": {
        **dict.fromkeys(["tiny", "small", "number", "hashed", "day", "old", "moment", "wall"], "delta_binary_packed"),
        **dict.fromkeys(["real", "wide", "doubles.list.element", "pair.deep.x"], "byte_stream_split"),
        **dict.fromkeys(["some", "nothing", "list.list.element", "pair.at", "lookup.key_value.key"], "delta_binary_packed"),
        **dict.fromkeys(["like", "lookup.key_value.value"], "delta_byte_array"),
        **dict.fromkeys(["unlike", "raw"], "delta_length_byte_array"),
    },
}


@pytest.fixture
def readers(spark: SparkSession) -> Iterator[Iterator[SparkSession]]:
    """The session, first with Spark's vectorised reader of Parquet, then with the other one."""
    key = "spark.sql.parquet.enableVectorizedReader"

    def each() -> Iterator[SparkSession]:
        for vectorised in ("true", "false"):
            spark.conf.set(key, vectorised)
            yield spark

    yield each()
    spark.conf.unset(key)


def fingerprint(rows: DataFrame) -> dict[str, tuple[object, object]]:
    """Of each column by itself, so that a difference tells where it is."""
    hashed = [
        f"struct(sum(CAST(xxhash64(to_json(struct(`{name}`))) AS DECIMAL(38))), count(*)) AS `{name}`" for name in rows.columns
    ]
    found = rows.selectExpr(*hashed).first()
    assert found is not None
    return {name: tuple(found[name]) for name in rows.columns}


@pytest.mark.parametrize("given", GIVEN.values(), ids=GIVEN)
def test_spark_reads_every_type_as_it_was(
    spark: SparkSession, readers: Iterator[SparkSession], tmp_path: Path, given: Any
) -> None:
    rows = spark.range(0, 5000, 1, 1).selectExpr(*(column.strip() for column in COLUMNS.split(";")))
    lake = Lake(tmp_path, column_encoding=given)
    lake.deliver(rows)
    if given == "auto":
        assert encodings(lake) >= {"DELTA_BINARY_PACKED", "RLE_DICTIONARY", "PLAIN"}
    expected = fingerprint(rows)
    for session in readers:
        assert fingerprint(lake.read(session)) == expected


def encodings(lake: Lake) -> set[str]:
    (file,) = lake.root().rglob("*.parquet")
    group = pq.ParquetFile(file).metadata.row_group(0)
    return {name for index in range(group.num_columns) for name in group.column(index).encodings}
