"""Stateful operators told from the plan, compared with what Spark keeps and refuses when the query runs."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pandas as pd
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name Spark's own documentation uses
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from penstock.errors import Usage
from penstock.source.open import open_sources
from penstock.spec.source import Source
from penstock.transform.guarantee import require_mode, stateful_operators
from penstock.transform.plan import plan_of
from tests.spark.streams import put, run

Query = Callable[[SparkSession], DataFrame]


@pytest.fixture(scope="module", autouse=True)
def views(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Views `a` and `b`, and `late_a` and `late_b` with a watermark; one input file each."""
    folder = tmp_path_factory.mktemp("operators")
    settings = {}
    for name in ("a", "b"):
        put(folder / name, "1.csv", "1,one,2026-01-01T00:00:00Z")
        plain = {"format": "csv", "path": str(folder / name), "schema": "n INT, t STRING, at TIMESTAMP"}
        settings[name] = Source(**plain)
        settings[f"late_{name}"] = Source(**plain, watermark={"column": "at", "delay": "1h"})
    open_sources(spark, settings)


def sql(query: str) -> Query:
    return lambda spark: spark.sql(query)


def counted(key: tuple[int], parts: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    yield pd.DataFrame({"n": [key[0]], "c": [sum(len(part) for part in parts)]})


def user_state(spark: SparkSession) -> DataFrame:
    grouped = spark.table("a").groupBy("n")
    return grouped.applyInPandasWithState(counted, "n INT, c LONG", "c LONG", "append", GroupStateTimeout.NoTimeout)


NEAR = "l.n = r.n AND l.at BETWEEN r.at AND r.at + INTERVAL 1 HOUR"
STATEFUL: dict[str, tuple[Query, list[tuple[str, bool | None]]]] = {
    "group": (sql("SELECT t, count(*) c FROM a GROUP BY t"), [("Aggregate", False)]),
    "all": (sql("SELECT count(*) c FROM a"), [("Aggregate", True)]),
    "window": (sql("SELECT window, count(*) c FROM late_a GROUP BY window(at, '5 minutes')"), [("Aggregate", True)]),
    "session": (
        sql("SELECT t, count(*) c FROM late_a GROUP BY t, session_window(at, '5m')"),
        [("Aggregate", True)],
    ),
    "beside the time": (sql("SELECT t, max(at) m FROM late_a GROUP BY t"), [("Aggregate", False)]),
    "distinct": (sql("SELECT DISTINCT n FROM a"), [("Distinct", False)]),
    "distinct time": (sql("SELECT DISTINCT at FROM late_a"), [("Distinct", True)]),
    "dedup": (lambda spark: spark.table("a").dropDuplicates(["n"]), [("Deduplicate", False)]),
    "dedup time": (lambda spark: spark.table("late_a").dropDuplicates(["n", "at"]), [("Deduplicate", True)]),
    "dedup within": (
        lambda spark: spark.table("late_a").dropDuplicatesWithinWatermark(["n"]),
        [("DeduplicateWithinWatermark", True)],
    ),
    "limit": (sql("SELECT * FROM a LIMIT 5"), [("GlobalLimit", True)]),
    "join": (sql(f"SELECT l.n FROM late_a l JOIN late_b r ON {NEAR}"), [("Join", True)]),
    "join for ever": (sql("SELECT a.n FROM a JOIN b ON a.n = b.n"), [("Join", False)]),
    "user state": (user_state, [("FlatMapGroupsInPandasWithState", None)]),
    "two": (
        lambda spark: spark.table("late_a").dropDuplicates(["n", "at"]).groupBy(F.window("at", "5 minutes")).count(),
        [("Aggregate", True), ("Deduplicate", True)],
    ),
}
STATELESS: dict[str, Query] = {
    "project": sql("SELECT n + 1 AS m, rand() AS r FROM a WHERE t IS NOT NULL"),
    "union": sql("SELECT * FROM a UNION ALL SELECT * FROM b"),
    "static join": sql("SELECT a.n, m FROM a JOIN (SELECT id AS n, count(*) m FROM range(3) GROUP BY id) s ON a.n = s.n"),
    "map": lambda spark: spark.table("a").mapInPandas(lambda parts: parts, "n INT, t STRING, at TIMESTAMP"),
}


def operators(frame: DataFrame) -> list[tuple[str, bool | None]]:
    return [(operator.name, operator.bounded) for operator in stateful_operators(plan_of(frame))]


@pytest.mark.parametrize("case", STATEFUL)
def test_stateful(spark: SparkSession, tmp_path: Path, case: str) -> None:
    query, expected = STATEFUL[case]
    frame = query(spark)

    assert operators(frame) == expected
    ran = run(frame, tmp_path, lambda rows, batch_id: rows.collect(), mode="append" if mode_fits(frame, "append") else "update")
    assert len(ran.lastProgress.stateOperators) >= len(expected)


@pytest.mark.parametrize("case", STATELESS)
def test_stateless(spark: SparkSession, tmp_path: Path, case: str) -> None:
    frame = STATELESS[case](spark)

    assert operators(frame) == []
    ran = run(frame, tmp_path, lambda rows, batch_id: rows.collect())
    assert ran.lastProgress.stateOperators == []


def mode_fits(frame: DataFrame, mode: str) -> bool:
    try:
        require_mode(plan_of(frame), output_mode=mode)
    except Usage:
        return False
    return True


@pytest.mark.parametrize("mode", ["append", "update", "complete"])
@pytest.mark.parametrize(
    "case", ["group", "all", "window", "session", "distinct", "dedup", "limit", "join", "two", "beside the time", "project"]
)
def test_output_modes_are_refused_where_spark_refuses_them(spark: SparkSession, tmp_path: Path, case: str, mode: str) -> None:
    frame = STATELESS[case](spark) if case in STATELESS else STATEFUL[case][0](spark)

    writer = frame.writeStream.format("noop").outputMode(mode).option("checkpointLocation", str(tmp_path))
    try:
        writer.start().stop()
        spark_lets_it = True
    except AnalysisException:
        spark_lets_it = False

    assert mode_fits(frame, mode) is spark_lets_it


def test_values_that_change_below_state(spark: SparkSession) -> None:
    for query, random in (
        ("SELECT DISTINCT n, uuid() u FROM a", ("uuid",)),
        ("SELECT DISTINCT n FROM a WHERE rand() < 0.5", ("rand",)),
        ("SELECT *, uuid() u FROM (SELECT DISTINCT n FROM a)", ()),
        ("SELECT DISTINCT n, current_timestamp() c FROM a", ()),
    ):
        (operator,) = stateful_operators(plan_of(spark.sql(query)))
        assert operator.random == random
