"""Every type that Spark has goes through staging, table, accounts and `verify`, which recomputes the digests without Spark."""

import sqlite3
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import penstock
from penstock.run.operations import verify
from tests.spark.streams import put
from tests.spark.target import Target

pytestmark = pytest.mark.spark

COLUMNS = """
    CAST(n AS BYTE) tiny, CAST(n AS SHORT) small, n, CAST(n AS BIGINT) * 4000000000 AS big, n % 2 = 0 AS even,
    CAST(n AS FLOAT) / 3 AS real, CASE n WHEN 1 THEN double('NaN') WHEN 2 THEN double('-Infinity') ELSE n / 7 END AS wide,
    CAST(n AS DECIMAL(9,2)) / 4 AS price, CAST(n AS DECIMAL(38,18)) AS huge, concat('a''b"c;ü', char(10), n) AS text,
    CAST(concat('x', n) AS BINARY) AS raw, date_add(DATE'2013-01-01', n) AS day, if(n = 3, NULL, 'rest') AS hole, NULL AS void,
    timestamp_micros(n * 1234567890123) AS moment, CAST(timestamp_micros(n * 7) AS TIMESTAMP_NTZ) AS wall,
    make_dt_interval(n, 1, 2, 3.000004) AS span, array(n, NULL) AS list, named_struct('a b', n, 'when', DATE'0001-01-01') AS pair,
    array(named_struct('deep', array(CAST(n AS DECIMAL(5,1)), NULL), 'at', TIMESTAMP'2024-10-27 02:30:00')) AS deep,
    map('one', n, 'two', NULL) AS lookup, map(coalesce(n, 9), array('v')) AS numbered
"""


@pytest.fixture
def elsewhere(spark: SparkSession) -> Iterator[SparkSession]:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    yield spark
    spark.conf.set("spark.sql.session.timeZone", str(before))


def typed(spark: SparkSession, root: Path) -> DataFrame:
    for number in range(3):
        put(root / "in", f"{number}.csv", number, number + 1, "no number")
    frame = spark.readStream.schema("n INT").option("maxFilesPerTrigger", 1).csv(str(root / "in"))
    return frame.selectExpr(*_split(COLUMNS))


def _split(text: str) -> list[str]:
    parts, depth, quoted, current = [], 0, False, ""
    for letter in text:
        quoted ^= letter == "'"
        depth += (letter == "(") - (letter == ")") if not quoted else 0
        if letter == "," and depth == 0 and not quoted:
            parts.append(current)
            current = ""
        else:
            current += letter
    return [*parts, current]


@pytest.mark.parametrize("database", ["warehouse.db", "home/ledger.db"])
def test_every_type_is_stored_and_proved(elsewhere: SparkSession, tmp_path: Path, database: str) -> None:
    target = Target(tmp_path)
    table = penstock.SQLite(url=f"sqlite:///{tmp_path}/{database}", table="types")
    delivery = target.delivery(sinks={"table": table})
    query = delivery.start(typed(elsewhere, tmp_path).writeStream.trigger(availableNow=True))
    query.awaitTermination()
    with sqlite3.connect(tmp_path / database) as connection:
        found = Counter(connection.execute("SELECT n, moment, wide, json_extract(deep, '$[0].at') FROM types"))
        assert connection.execute("SELECT rows_after FROM penstock_marker").fetchone() == (9,)
    connection.close()
    at = "2024-10-27 00:30:00.000000Z"
    assert found == Counter(
        {
            (0, "1970-01-01 00:00:00.000000Z", 0.0, at): 1,
            (1, "1970-01-15 06:56:07.890123Z", "NaN", at): 2,
            (2, "1970-01-29 13:52:15.780246Z", float("-inf"), at): 2,
            (3, "1970-02-12 20:48:23.670369Z", 3 / 7, at): 1,
            (None, None, None, at): 3,
        }
    )
    report = verify(delivery.plan)
    assert report.sinks["table"].ok, report
