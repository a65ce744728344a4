"""Every type that an account can hold comes through `format: penstock` as Spark reads it from the files, by plain Spark too."""

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import penstock
from penstock.core.model import SourceName
from penstock.errors import Usage
from penstock.run.chain.opening import read_chained
from penstock.spec.source import Source
from tests.crash.commandline import penstock as command

PIPELINE = """\
pipeline: typed
home: ./state
sources:
  numbers: {format: rate-micro-batch, options: {rowsPerBatch: 4, startTimestamp: 0}}
transform:
  sql: >
    SELECT value AS id, value % 2 = 0 AS flag, CAST(value AS TINYINT) AS b, CAST(value AS SMALLINT) AS s, CAST(value AS INT) AS i,
    CAST(value AS FLOAT) AS f, CAST(value AS DOUBLE) AS d, CAST(value AS DECIMAL(20,3)) AS dec, CAST(value AS STRING) AS text,
    CAST(CAST(value AS STRING) AS BINARY) AS bytes, DATE_ADD(DATE'2026-01-01', CAST(value AS INT)) AS day, timestamp AS at,
    CAST(timestamp AS TIMESTAMP_NTZ) AS local, ARRAY(NAMED_STRUCT('n', value, 't', CAST(NULL AS STRING))) AS list,
    MAP(CAST(value AS STRING), ARRAY(CAST(value AS INT))) AS mapped, NAMED_STRUCT('x', DATE'2026-01-01', 'y', value) AS nested,
    MAKE_DT_INTERVAL(0, CAST(value AS INT)) AS span, IF(value = 1, NULL, value) AS gap,
    DATE_ADD(DATE'2026-01-01', CAST(value AS INT)) AS part_day, CAST(value % 2 AS INT) AS part,
    IF(value = 2, NULL, 'a/b') AS part_text
    FROM numbers
sinks:
  lake: {type: parquet, accounts: {all: ./lake}, partition_by: [part_day, part, part_text]}
trigger: {processing_time: 0s}
"""


@pytest.fixture(scope="module")
def file(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("typed")
    (root / "typed.yaml").write_text(PIPELINE)
    done = command("run", "typed.yaml", "--batches", "2", "--json", directory=root)
    assert done.code == 0, str(done)
    return root / "typed.yaml"


def drained(frame: DataFrame, name: str, root: Path) -> list[str]:
    writer = frame.writeStream.format("memory").queryName(name).option("checkpointLocation", str(root / name))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return sorted(map(str, frame.sparkSession.table(name).collect()))


def test_rows_are_as_spark_reads_them_from_the_files(spark: SparkSession, file: Path, tmp_path: Path) -> None:
    penstock.register_source(spark)
    frame = spark.readStream.format("penstock").option("maxBatchesPerTrigger", 1).load(str(file))
    table = penstock.read(file).spark(spark)
    assert frame.schema.simpleString() == table.schema.simpleString()
    found = drained(frame, "all_types", tmp_path)
    assert found == sorted(map(str, table.select(*frame.columns).collect()))
    assert len(found) == 8


def test_columns_may_be_chosen(spark: SparkSession, file: Path, tmp_path: Path) -> None:
    source = Source(format="penstock", path=str(file), schema="id BIGINT, part_text STRING, more INT")
    frame = read_chained(spark, "chosen", source, pipeline="second")
    found = drained(frame, "chosen_columns", tmp_path)
    assert found[0] == "Row(id=0, part_text='a/b', more=None)"
    assert len(found) == 8


def test_a_pipeline_does_not_read_itself(spark: SparkSession, file: Path) -> None:
    source = Source(format="penstock", path=str(file))
    with pytest.raises(Usage, match=r"sources.again reads pipeline 'typed', which is this one"):
        read_chained(spark, SourceName("again"), source, pipeline="typed")
