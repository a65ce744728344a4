"""Opening sources on real Spark: every format delivers, every mistake is one sentence."""

from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from penstock.errors import DependencyMissing, PenstockError, Usage
from penstock.source.open import open_source, open_sources
from penstock.spec.source import Source
from tests.spark.streams import everything

ROWS = [(1, "one"), (2, "zwei, drei"), (3, None)]
SCHEMA = "n INT, t STRING"


def written(spark: SparkSession, folder: Path, kind: str, **options: str) -> str:
    spark.createDataFrame(ROWS, SCHEMA).write.format(kind).options(**options).save(str(folder))
    return str(folder)


def opened(spark: SparkSession, **settings: object) -> DataFrame:
    return open_source(spark, "s", Source(**settings))


@pytest.mark.parametrize("kind", ["json", "csv", "parquet", "orc"])
def test_file_formats_with_columns(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    path = written(spark, tmp_path / "in", kind)

    frame = opened(spark, format=kind, path=path, schema=SCHEMA)

    assert everything(frame, tmp_path) == Counter(ROWS)


def test_xml(spark: SparkSession, tmp_path: Path) -> None:
    path = written(spark, tmp_path / "in", "xml", rowTag="r")

    frame = opened(spark, format="xml", path=path, schema=SCHEMA, options={"rowTag": "r"})

    assert everything(frame, tmp_path) == Counter(ROWS)


def test_text_and_binary_files_need_no_schema(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a").write_bytes(b"x\ny\n")

    text = opened(spark, format="text", path=str(folder))
    binary = opened(spark, format="binaryFile", path=str(folder)).select("length", "content")

    assert everything(text, tmp_path / "1") == Counter([("x",), ("y",)])
    assert everything(binary, tmp_path / "2") == Counter([(4, b"x\ny\n")])


def test_schema_as_json(spark: SparkSession, tmp_path: Path) -> None:
    path = written(spark, tmp_path / "in", "json")
    text = spark.createDataFrame(ROWS, SCHEMA).schema.json()

    assert everything(opened(spark, format="json", path=path, schema=text), tmp_path) == Counter(ROWS)


def test_rate_micro_batch_and_formats_passed_through(spark: SparkSession) -> None:
    assert opened(spark, format="rate-micro-batch", options={"rowsPerBatch": 3}).columns == ["timestamp", "value"]
    assert opened(spark, format="rate").columns == ["timestamp", "value"]
    assert opened(spark, format="socket", options={"host": "localhost", "port": 9}).columns == ["value"]


def test_tables(spark: SparkSession, tmp_path: Path) -> None:
    path = written(spark, tmp_path / "in", "parquet")
    spark.sql(f"CREATE TABLE streamed ({SCHEMA}) USING parquet LOCATION '{path}'")
    try:
        assert everything(opened(spark, table="streamed"), tmp_path) == Counter(ROWS)
    finally:
        spark.sql("DROP TABLE streamed")


def test_every_source_is_a_view_of_its_name(spark: SparkSession, tmp_path: Path) -> None:
    path = written(spark, tmp_path / "in", "json")
    source = Source(format="json", path=path, schema=SCHEMA)

    frames = open_sources(spark, {"left_side": source, "right_side": source})

    assert list(frames) == ["left_side", "right_side"]
    united = spark.sql("SELECT n FROM left_side UNION ALL SELECT n + 10 FROM right_side")
    assert everything(united, tmp_path) == Counter([(n,) for n in (1, 2, 3, 11, 12, 13)])


def test_watermark(spark: SparkSession) -> None:
    frame = opened(spark, format="rate", watermark={"column": "timestamp", "delay": "10m"})

    assert "EventTimeWatermark" in frame._jdf.queryExecution().analyzed().toString()


def complaint(spark: SparkSession, **settings: object) -> PenstockError:
    with pytest.raises((Usage, DependencyMissing)) as raised:
        opened(spark, **settings)
    assert "\n" not in raised.value.message
    assert "SQLSTATE" not in str(raised.value)
    return raised.value


def test_a_missing_path(spark: SparkSession, tmp_path: Path) -> None:
    error = complaint(spark, format="csv", path=str(tmp_path / "nowhere"), schema=SCHEMA)

    assert error.message == f"sources.s.path {tmp_path}/nowhere does not exist."


def test_a_missing_schema(spark: SparkSession, tmp_path: Path) -> None:
    error = complaint(spark, format="csv", path=str(tmp_path))

    assert error.message == "sources.s reads csv files but has no schema."


@pytest.mark.parametrize(("ddl", "place"), [("n INT, t", " at character 9"), ("n INTT", " at character 3"), ('{"type": 1}', "")])
def test_a_corrupt_schema(spark: SparkSession, tmp_path: Path, ddl: str, place: str) -> None:
    error = complaint(spark, format="csv", path=str(tmp_path), schema=ddl)

    assert error.message.startswith(f"sources.s.schema cannot be read{place}: ")
    assert repr(ddl) in error.message


def test_an_unknown_format(spark: SparkSession, tmp_path: Path) -> None:
    error = complaint(spark, format="jsn", path=str(tmp_path), schema=SCHEMA)

    assert error.message == "sources.s.format jsn is not known to this Spark."
    assert error.remedy.startswith("Did you mean json? ")


def test_formats_whose_jar_is_missing(spark: SparkSession, tmp_path: Path) -> None:
    assert "spark-avro" in complaint(spark, format="avro", path=str(tmp_path), schema=SCHEMA).remedy


def test_a_format_that_is_no_stream(spark: SparkSession) -> None:
    assert complaint(spark, format="jdbc").message == "sources.s.format jdbc cannot be read as a stream."


def test_options_that_spark_refuses(spark: SparkSession) -> None:
    error = complaint(spark, format="rate", options={"rowsPerSecond": "many"})

    assert error.message == 'sources.s (rate) cannot be opened: For input string: "many".'


def test_a_watermark_on_no_time(spark: SparkSession) -> None:
    missing = complaint(spark, format="rate", watermark={"column": "when", "delay": "1m"})
    wrong = complaint(spark, format="rate", watermark={"column": "value", "delay": "1m"})

    assert missing.message.startswith("sources.s.watermark cannot be put on column 'when': ")
    assert "BIGINT" in wrong.message
    assert wrong.remedy == "Name a TIMESTAMP column of the source; it has timestamp, value."


def test_a_table_that_is_not_there(spark: SparkSession) -> None:
    assert complaint(spark, table="nosuch").message == (
        "sources.s (nosuch) cannot be opened: The table or view `nosuch` cannot be found. "
        "Verify the spelling and correctness of the schema and catalog (TABLE_OR_VIEW_NOT_FOUND)."
    )
