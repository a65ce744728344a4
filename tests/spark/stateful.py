"""Stateful queries whose rows come out in batches without input, too, and functions in Python that keep state and timers."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name Spark's own documentation uses
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

Build = Callable[[SparkSession, Path], DataFrame]

SCHEMA = "n INT, at TIMESTAMP"
COUNTED = "n INT, many LONG"
PROVIDER = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def events(spark: SparkSession, folder: Path) -> DataFrame:
    """Events `n` of the time `at`, which are never late; a file a batch."""
    folder.mkdir(exist_ok=True)
    return spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).csv(str(folder)).withWatermark("at", "0 seconds")


def tumbling(spark: SparkSession, root: Path) -> DataFrame:
    counted = events(spark, root / "in").groupBy(F.window("at", "1 minute"), "n").agg(F.count("*").alias("many"))
    return counted.select("n", "many")


def sessions(spark: SparkSession, root: Path) -> DataFrame:
    counted = events(spark, root / "in").groupBy(F.session_window("at", "30 seconds"), "n").agg(F.count("*").alias("many"))
    return counted.select("n", "many")


def joined(spark: SparkSession, root: Path) -> DataFrame:
    """What finds no partner comes out when the watermark has passed."""
    left = events(spark, root / "in")
    right = events(spark, root / "right").selectExpr("n AS m", "at AS bt")
    found = left.join(right, F.expr("n = m AND bt BETWEEN at AND at + INTERVAL 20 SECONDS"), "leftOuter")
    return found.selectExpr("n", "CAST(coalesce(m, -1) AS LONG) AS many")


def counted_in_pandas(spark: SparkSession, root: Path) -> DataFrame:
    """A count for each `n`, which comes out when the watermark has passed its last event by ten seconds."""

    def count(key: tuple[int], frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
        if state.hasTimedOut:
            (many,) = state.get
            state.remove()
            yield pd.DataFrame({"n": [key[0]], "many": [many]})
            return
        seen = [frame["at"] for frame in frames]
        before, newest_ms = state.get[0] if state.exists else 0, max(int(at.max().timestamp() * 1000) for at in seen)
        state.update((before + sum(map(len, seen)),))
        state.setTimeoutTimestamp(newest_ms + 10_000)

    grouped = events(spark, root / "in").groupBy("n")
    return grouped.applyInPandasWithState(count, COUNTED, "many LONG", "append", "EventTimeTimeout")


class Counter(StatefulProcessor):
    """As `counted_in_pandas`, by a timer; a function of rows or of pandas, as `make` makes its result."""

    def __init__(self, make: Callable[[int, int], Any], sizes: Callable[[Any], tuple[int, int]]) -> None:
        self._make, self._sizes = make, sizes

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle, self._many = handle, handle.getValueState("many", "many LONG")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:  # noqa: N802, N803
        sizes = [self._sizes(each) for each in rows]
        before = self._many.get()[0] if self._many.exists() else 0
        self._many.update((before + sum(size for size, _ in sizes),))
        for timer in list(self._handle.listTimers()):
            self._handle.deleteTimer(timer)
        self._handle.registerTimer(max(newest_ms for _, newest_ms in sizes) + 10_000)
        return iter(())

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Any]:  # noqa: N802, N803
        (many,) = self._many.get()
        self._many.clear()
        yield self._make(key[0], many)

    def close(self) -> None:
        """Nothing to do."""


def _frame(n: int, many: int) -> pd.DataFrame:
    return pd.DataFrame({"n": [n], "many": [many]})


def _size_of_frame(frame: pd.DataFrame) -> tuple[int, int]:
    return len(frame), int(frame["at"].max().timestamp() * 1000)


def counted_by_timers_in_pandas(spark: SparkSession, root: Path) -> DataFrame:
    grouped = events(spark, root / "in").groupBy("n")
    return grouped.transformWithStateInPandas(Counter(_frame, _size_of_frame), COUNTED, "append", "EventTime")


def _row(n: int, many: int) -> Any:
    from pyspark.sql import Row

    return Row(n=n, many=many)


def _size_of_row(row: Any) -> tuple[int, int]:
    return 1, int(row["at"].timestamp() * 1000)


def counted_by_timers(spark: SparkSession, root: Path) -> DataFrame:
    grouped = events(spark, root / "in").groupBy("n")
    return grouped.transformWithState(Counter(_row, _size_of_row), COUNTED, "append", "EventTime")
