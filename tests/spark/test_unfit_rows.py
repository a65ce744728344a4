"""Rows of text files that do not fit the schema are delivered as before, and counted in the same pass (issue 21)."""

from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

import penstock
from penstock.observe.progress import BatchProgress
from penstock.source.open import open_sources
from penstock.source.unfit_rows import counts_unfit_rows
from penstock.spec.source import Source
from tests.spark.streams import everything, put
from tests.spark.target import Target

pytestmark = pytest.mark.spark

SCHEMA = "id INT, origin STRING, month INT"
FILES = {
    "csv": ("1,EWR", "x,JFK", "3", "4,LGA,more"),
    "json": ('{"id": 1, "origin": "EWR"}', '{"id": "x", "origin": "JFK"}', "nonsense", '{"origin": "LGA"}'),
    "xml": ("<row><id>1</id><origin>EWR</origin></row>", "<row><id>x</id><origin>JFK</origin></row>"),
}
PIPELINE = """
pipeline: numbers
home: home
trigger: {{available_now: true}}
sources:
  flights: {{format: csv, path: "{root}/in", schema: "n INT, origin STRING", options: {{maxFilesPerTrigger: 1}}}}
transform: {{sql: "SELECT a.n FROM flights a UNION ALL SELECT length(origin) FROM flights WHERE n > 1"}}
sinks:
  table: {{type: sqlite, url: "sqlite:///{root}/warehouse.db", table: numbers}}
"""


@pytest.mark.parametrize(
    ("kind", "columns"),
    [*((kind, ("id", "origin", "month", "_metadata.file_name")) for kind in FILES), ("csv", ("month",))],
    ids=[*FILES, "csv, only what is in the path"],
)
def test_the_rows_are_what_spark_alone_makes_of_them(
    spark: SparkSession, tmp_path: Path, kind: str, columns: tuple[str, ...]
) -> None:
    """Also where a column is of the path, and no directory said so before the query: Spark moves it behind all others."""
    (tmp_path / "in").mkdir()
    options = {"rowTag": "row"} if kind == "xml" else {}
    source = Source(format=kind, path=tmp_path / "in", schema=SCHEMA, options=options)
    frame = open_sources(spark, {"s": source})["s"]
    assert frame.columns == ["id", "origin", "month"]
    put(tmp_path / "in" / "month=7", f"a.{kind}", *FILES[kind])
    alone = spark.read.options(**source.options).schema(SCHEMA).format(kind).load(str(tmp_path / "in"))
    found = everything(frame.selectExpr(*columns), tmp_path)
    assert found == Counter(tuple(row) for row in alone.selectExpr(*columns).collect())
    assert found.total() == len(FILES[kind])


def test_check_and_a_run_warn_with_their_number(spark: SparkSession, tmp_path: Path) -> None:
    target, told = Target(tmp_path), list[BatchProgress]()
    put(tmp_path / "in", "0.csv", "1,EWR", "x,JFK", "3", "4,LGA,more")
    put(tmp_path / "in", "1.csv", "5,ORD")
    (tmp_path / "pipeline.yaml").write_text(PIPELINE.format(root=tmp_path))
    pipeline = penstock.Pipeline.from_file(tmp_path / "pipeline.yaml")
    report = pipeline.check(spark)
    (seen,) = (one.message for one in report.findings if one.warns)
    assert report.ok
    assert seen.startswith("3 of 5 rows in 2 files that were looked at do not fit sources.flights.schema: ")
    pipeline.start(spark, observers=[told.append]).awaitTermination()
    assert target.rows() == Counter([(1,), (None,), (3,), (4,), (5,), (None,), (3,), (3,)])
    first, second = told
    (warning,) = first.warnings
    assert warning.startswith("3 rows do not fit sources.flights.schema: what Spark cannot read of them is NULL. ")
    assert second.warnings == ()


@pytest.mark.parametrize(
    ("options", "schema", "counted"),
    [
        ({"header": "true"}, "id INT", [True]),
        ({"mode": "PERMISSIVE"}, "id INT", []),
        ({"mode": "FAILFAST"}, "id INT", []),
        ({"singleVariantColumn": "v"}, "v VARIANT", []),
        ({}, "id INT, _corrupt_record STRING", []),
        ({"columnNameOfCorruptRecord": "bad"}, "id INT, bad STRING", []),
        ({"columnNameOfCorruptRecord": "bad"}, "id INT", [True]),
    ],
)
def test_a_file_that_says_what_becomes_of_them_is_left_alone(
    spark: SparkSession, options: dict[str, str], schema: str, counted: list[bool]
) -> None:
    source = Source(format="csv", path="/in", schema=schema, options=options)
    assert [True] * counts_unfit_rows(spark, source, StructType.fromDDL(schema)) == counted
