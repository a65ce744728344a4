"""The key `transform.sql`: one query over the sources' views."""

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from penstock.errors import Usage
from penstock.spark.error import SparkError, read_spark_error

_ONLY_A_QUERY = "EXPLAIN CREATE OR REPLACE TEMPORARY VIEW penstock_transform AS\n"
_LINES_BEFORE = 1


def run_sql(spark: SparkSession, query: str) -> DataFrame:
    """Return the DataFrame of `query`. Raises Usage if it is wrong, or a statement that changes a catalog instead of a query."""
    _require_query(spark, query)
    try:
        frame = spark.sql(query)
        _ = frame.schema  # Spark Connect analyses only when it is asked for something
    except PySparkException as error:
        raise _wrong(read_spark_error(str(error)), query) from error
    return frame


def _require_query(spark: SparkSession, query: str) -> None:
    """Raise Usage for anything but a query, by parsing it without running it: Spark runs `CREATE …` and the like on sight."""
    try:
        spark.sql(_ONLY_A_QUERY + query).collect()
    except PySparkException as error:
        spark_error = read_spark_error(str(error))
        if spark_error.condition is None or not spark_error.condition.startswith("PARSE_"):
            return
        line = None if spark_error.line is None else spark_error.line - _LINES_BEFORE
        moved = SparkError(message=spark_error.message, condition=spark_error.condition, line=line, column=spark_error.column)
        raise _wrong(moved, query) from error


def _wrong(spark_error: SparkError, query: str) -> Usage:
    place = "" if spark_error.line is None else f" line {spark_error.line}, column {spark_error.column}"
    return Usage(
        f"transform.sql{place}: {spark_error.sentence}{_near(spark_error, query)}",
        remedy="Correct the query in the pipeline file; it must be one query that Spark SQL understands.",
    )


def _near(spark_error: SparkError, query: str) -> str:
    lines = query.split("\n")
    if spark_error.line is None or not 0 < spark_error.line <= len(lines):
        return ""
    start = max(0, (spark_error.column or 1) - 40)
    near = lines[spark_error.line - 1][start : start + 80].strip()
    return f" It is near `{near}`." if near else ""
