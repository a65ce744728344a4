"""Transforms without state and with each kind of state; what they deliver of an input does not depend on its batches."""

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name Spark's own documentation uses

Sources = Mapping[str, DataFrame]


def stateless(_: SparkSession, sources: Sources) -> DataFrame:
    return sources["left"].selectExpr("n", "unix_timestamp(at) AS many")


def windows(_: SparkSession, sources: Sources) -> DataFrame:
    counted = sources["left"].groupBy(F.window("at", "1 minute"), "n").agg(F.count("*").alias("many"))
    return counted.select("n", "many")


def distinct(_: SparkSession, sources: Sources) -> DataFrame:
    return sources["left"].dropDuplicates(["n", "at"]).selectExpr("n", "unix_timestamp(at) AS many")


def joined(_: SparkSession, sources: Sources) -> DataFrame:
    right = sources["right"].selectExpr("n AS m", "at AS bt")
    found = sources["left"].join(right, F.expr("n = m AND bt BETWEEN at AND at + INTERVAL 20 SECONDS"))
    return found.selectExpr("n", "unix_timestamp(at) AS many")


def numbered(_: SparkSession, sources: Sources) -> DataFrame:
    """Each row with how many its key has had, in a state of a Python function."""

    def number(key: tuple[int], frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
        before = state.get[0] if state.exists else 0
        rows = sum(map(len, frames))
        state.update((before + rows,))
        yield pd.DataFrame({"n": [key[0]] * rows, "many": range(before + 1, before + rows + 1)})

    return sources["left"].groupBy("n").applyInPandasWithState(number, "n INT, many LONG", "many LONG", "append", "NoTimeout")
