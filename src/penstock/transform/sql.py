"""`transform.sql`: one query over the sources' views."""

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from penstock.errors import Usage
from penstock.spark.error import SparkError, read_spark_error

_ONLY_A_QUERY = "EXPLAIN CREATE OR REPLACE TEMPORARY VIEW penstock_transform AS\n"
_LINES_BEFORE = 1


def run_sql(spark: SparkSession, query: str) -> DataFrame:
    """The DataFrame of `query`. Nothing but a query is let through: no statement that changes a catalog. Raises Usage."""
    _require_query(spark, query)
    try:
        frame = spark.sql(query)
        _ = frame.schema  # Spark Connect analyses only when it is asked for something
    except PySparkException as error:
        raise _wrong(read_spark_error(str(error)), query) from error
    return frame


def _require_query(spark: SparkSession, query: str) -> None:
    """Spark runs `CREATE …` and its like at sight, so the text is first parsed, and not run, where only a query can stand."""
    try:
        spark.sql(_ONLY_A_QUERY + query).collect()
    except PySparkException as error:
        said = read_spark_error(str(error))
        if said.condition is None or not said.condition.startswith("PARSE_"):
            return
        line = None if said.line is None else said.line - _LINES_BEFORE
        moved = SparkError(message=said.message, condition=said.condition, line=line, column=said.column)
        raise _wrong(moved, query) from error


def _wrong(said: SparkError, query: str) -> Usage:
    place = "" if said.line is None else f" line {said.line}, column {said.column}"
    return Usage(
        f"transform.sql{place}: {said.sentence}{_near(said, query)}",
        remedy="Correct the query in the pipeline file; it must be one query that Spark SQL understands.",
    )


def _near(said: SparkError, query: str) -> str:
    lines = query.split("\n")
    if said.line is None or not 0 < said.line <= len(lines):
        return ""
    start = max(0, (said.column or 1) - 40)
    near = lines[said.line - 1][start : start + 80].strip()
    return f" It is near `{near}`." if near else ""
