"""Row hashes: Spark's own, in the pass, and those that `verify` computes without Spark, on random rows of every type."""

import random
import re

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import LongType, StructField, StructType

from penstock.core.model import RowDigest
from penstock.core.row_hash import row_hashes
from penstock.errors import PenstockError
from penstock.stage.row_hash_sql import rowhash_sql

TYPES = {
    "tinyint": "CAST(pmod(r, 256) - 128 AS TINYINT)",
    "smallint": "CAST(pmod(r, 65536) - 32768 AS SMALLINT)",
    "int": "CAST(pmod(r, 4294967296) - 2147483648 AS INT)",
    "bigint": "r",
    "float": "CASE pmod(r, 11) WHEN 0 THEN CAST('-0.0' AS FLOAT) WHEN 1 THEN CAST('NaN' AS FLOAT) ELSE CAST(r AS FLOAT) / 7 END",
    "double": "CASE pmod(r, 11) WHEN 0 THEN -0.0D WHEN 1 THEN double('NaN') WHEN 2 THEN double('-Infinity') ELSE r / 7D END",
    "boolean": "pmod(r, 2) = 0",
    "string": "repeat(concat('é', CAST(r AS STRING), chr(0)), CAST(pmod(r, 9) AS INT))",
    "collated": "collate(substr('aAbBäÄ', CAST(pmod(r, 6) AS INT) + 1, 2), 'UTF8_LCASE')",
    "binary": "CAST(repeat(CAST(r AS STRING), CAST(pmod(r, 9) AS INT)) AS BINARY)",
    "date": "date_add(DATE'1970-01-01', CAST(pmod(r, 2000000) - 700000 AS INT))",
    "timestamp": "timestamp_micros(pmod(r, 253402300799999999) - 62135596800000000)",
    "timestamp_ntz": "CAST(CAST(timestamp_micros(pmod(r, 10000000000000000)) AS STRING) AS TIMESTAMP_NTZ)",
    "decimal(5,2)": "CAST(pmod(r, 100000) / 100 AS DECIMAL(5,2))",
    "decimal(18,0)": "CAST(pmod(r, 1000000000000000000) AS DECIMAL(18,0))",
    "decimal(38,4)": "CAST(r AS DECIMAL(20,0)) * CAST(pmod(r, 9999999999999) AS DECIMAL(18,4))",
    "interval": "make_dt_interval(CAST(pmod(r, 3000) AS INT), 1, 2, 3.000004)",
    "array": "transform(sequence(0, pmod(r, 5)), x -> IF(pmod(x + r, 3) = 0, NULL, concat('v', CAST(r AS STRING))))",
    "empty array": "IF(pmod(r, 2) = 0, CAST(array() AS ARRAY<INT>), array(CAST(NULL AS INT)))",
    "struct": "named_struct('a b', r, 'c', IF(pmod(r, 3) = 0, NULL, named_struct('d', array(CAST(r AS STRING)))))",
    "map": "IF(pmod(r, 4) = 0, map(), map(CAST(r AS STRING), r, 'k', NULL))",
    "map in map": "map('x', map(1, r), 'y', NULL)",
    "map in array": "array(map(r, array(r)), NULL)",
    "map in struct": "IF(pmod(r, 2) = 0, NULL, named_struct('m', map('k', r), 'n', r))",
    "void": "NULL",
}


def random_rows(spark: SparkSession, rows: int = 3000) -> DataFrame:
    seed = random.randrange(1 << 31)
    print(f"seed {seed}")
    null = "pmod(xxhash64(id, {0}, {1}), 10) = 0"
    columns = [f"IF({null.format(seed, index)}, NULL, {sql}) AS `{name}`" for index, (name, sql) in enumerate(TYPES.items())]
    return spark.range(0, rows, 1, 3).selectExpr(f"xxhash64(id, {seed}) AS r", "id").selectExpr(*columns)


@pytest.fixture(scope="module")
def hashed(spark: SparkSession) -> pa.Table:
    """All columns, and for each kind the row's hash `h`, and one hash for each column alone."""
    rows = random_rows(spark)
    schema = rows.schema
    hashes = [
        f"{rowhash_sql(hashed, kind)} AS `{name} {kind.value}`"
        for kind in RowDigest
        for name, hashed in [("h", schema), *((f"h {field.name}", type(schema)([field])) for field in schema.fields)]
    ]
    projected = rows.selectExpr("*", *hashes)
    return pa.Table.from_batches(projected._collect_as_arrow())  # toArrow() casts, and fails on nulls inside of nulls


@pytest.mark.parametrize("kind", RowDigest)
@pytest.mark.parametrize("name", list(TYPES))
def test_each_type_alone(hashed: pa.Table, name: str, kind: RowDigest) -> None:
    found = np.asarray(row_hashes(hashed.select([name]), kind))
    expected = np.asarray(hashed[f"h {name} {kind.value}"]).view(np.uint64)
    assert (found == expected).all()
    assert len(hashed) == 3000


@pytest.mark.parametrize("kind", RowDigest)
def test_the_whole_row(hashed: pa.Table, kind: RowDigest) -> None:
    found = row_hashes(hashed.select(list(TYPES)), kind)
    assert (np.asarray(found) == np.asarray(hashed[f"h {kind.value}"]).view(np.uint64)).all()


@pytest.mark.parametrize("kind", RowDigest)
def test_hashes_tell_rows_apart(hashed: pa.Table, kind: RowDigest) -> None:
    assert len(set(hashed[f"h {kind.value}"].to_pylist())) == len(hashed)


def test_rows_that_differ_in_where_nulls_are_hash_apart_in_spark(spark: SparkSession) -> None:
    values = [
        (1, None, None, None, None),
        (None, 1, None, None, None),
        (None, None, [], None, None),
        (None, None, [None], None, None),
        (None, None, [None, 1], None, None),
        (None, None, [1, None], None, None),
        (None, None, [1], None, None),
        (None, None, [1, 0], None, None),
        (None, None, None, (None, None), None),
        (None, None, None, (1, None), None),
        (None, None, None, (None, 1), None),
        (None, None, None, None, {}),
        (None, None, None, None, {"": None}),
        (None, None, None, None, None),
    ]
    rows = spark.createDataFrame(values, "a INT, b INT, c ARRAY<INT>, d STRUCT<x: INT, y: INT>, e MAP<STRING, INT>")
    hashes = {kind: [row[0] for row in rows.selectExpr(rowhash_sql(rows.schema, kind)).collect()] for kind in RowDigest}
    assert len(set(hashes[RowDigest.XXHASH64_NULLS])) == len(values)
    assert len(set(hashes[RowDigest.XXHASH64])) < len(values)


def test_rows_of_1500_columns(spark: SparkSession) -> None:
    """Elements of one array stand for the columns: the hash is the same, and Spark need not compile 1,500 others."""
    numbers = spark.range(20).selectExpr(
        "transform(sequence(0, 1499), at -> IF(pmod(xxhash64(id, at), 3) = 0, NULL, id + at)) AS a"
    )
    columns = StructType([StructField(f"c{at}", LongType()) for at in range(1500)])
    hashed = re.sub(r"`c(\d+)`", r"a[\1]", rowhash_sql(columns, RowDigest.XXHASH64_NULLS))
    found = pa.Table.from_batches(numbers.selectExpr("a", f"{hashed} AS h")._collect_as_arrow())
    values = zip(*found["a"].to_pylist(), strict=True)
    rows = pa.table([pa.array(column, pa.int64()) for column in values], columns.names)
    assert (np.asarray(found["h"]).view(np.uint64) == np.asarray(row_hashes(rows, RowDigest.XXHASH64_NULLS))).all()


@pytest.mark.parametrize("columns", [30, 126])
def test_wide_rows(spark: SparkSession, columns: int) -> None:
    rows = spark.range(20).selectExpr(
        *(f"IF(pmod(xxhash64(id, {at}), 3) = 0, NULL, id + {at}) AS c{at}" for at in range(columns))
    )
    found = pa.Table.from_batches(
        rows.selectExpr("*", f"{rowhash_sql(rows.schema, RowDigest.XXHASH64_NULLS)} AS h")._collect_as_arrow()
    )
    expected = row_hashes(found.drop(["h"]), RowDigest.XXHASH64_NULLS)
    assert (np.asarray(found["h"]).view(np.uint64) == np.asarray(expected)).all()


@pytest.mark.parametrize(
    ("sql", "told"),
    [
        ("INTERVAL '1' YEAR", "'v' has the Spark type interval year"),
        ("make_interval(1)", "'v' has the Spark type interval"),
        ("parse_json('{}')", "'v' has the Spark type variant"),
        ("named_struct('deep', array(parse_json('{}')))", "'v.deep.element' has the Spark type variant"),
    ],
)
def test_types_that_cannot_be_verified_are_refused(spark: SparkSession, sql: str, told: str) -> None:
    with pytest.raises(PenstockError, match=told):
        rowhash_sql(spark.sql(f"SELECT {sql} AS v").schema, RowDigest.XXHASH64_NULLS)
