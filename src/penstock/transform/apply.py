"""Application of a pipeline file's `transform:`: SQL over the sources' views, a Python function, or nothing."""

import inspect
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from penstock.core.model import SourceName
from penstock.errors import Failed, Usage
from penstock.spark.error import SparkError, read_spark_error
from penstock.spec.pipeline import Transform
from penstock.support.secret import MASK, SHORTEST_SCRUBBED, scrub, values_in
from penstock.support.user_code import load, loaded_beside, raised
from penstock.transform.plan import plan_of, source_order


def apply_transform(
    spark: SparkSession, sources: Mapping[SourceName, DataFrame], transform: Transform | None, *, modules: Path | None = None
) -> DataFrame:
    """Return the DataFrame that the pipeline delivers.

    `modules` is the directory of the pipeline file: Python transforms are found there as well as on the search path. Raises Usage
    if the transform is wrong, is no stream, or leaves a source out, and Failed if the function raised.
    """
    frame = _applied(spark, sources, transform, modules)
    if not frame.isStreaming:
        raise Usage(
            "The transform's result is not a stream: it reads none of the sources.",
            remedy=f"Read from {' or '.join(sources)}.",
        )
    _require_all_used(frame, sources, "transform" if transform is not None else "sources")
    return frame


def apply_to_tables(
    spark: SparkSession, tables: Mapping[SourceName, DataFrame], transform: Transform | None, *, modules: Path | None = None
) -> DataFrame:
    """Return the rows that the pipeline's transform makes of `tables`, which hold the rows of one batch for each source.

    The tables are registered under the names of their sources. Raises Usage if the transform is wrong, Failed if it raised.
    """
    for name, table in tables.items():
        table.createOrReplaceTempView(name)
    return _applied(spark, tables, transform, modules)


def _applied(
    spark: SparkSession, sources: Mapping[SourceName, DataFrame], transform: Transform | None, modules: Path | None
) -> DataFrame:
    if transform is not None and transform.sql is not None:
        return run_sql(spark, transform.sql)
    if transform is not None and transform.python is not None:
        return run_python(spark, sources, transform.python, modules=modules)
    if len(sources) != 1:
        raise Usage(
            f"There are {len(sources)} sources ({', '.join(sources)}) and no transform.",
            remedy="Add transform: {sql: …} that joins or unites them.",
        )
    return next(iter(sources.values()))


def _require_all_used(frame: DataFrame, sources: Mapping[SourceName, DataFrame], key: str) -> None:
    used = source_order(plan_of(frame), tuple(sources))
    unused = [name for name in sources if name not in used]
    if unused:
        raise Usage(
            f"The {key} leaves out {', '.join(unused)}, so nothing of it would be delivered.",
            remedy="Use it in the transform, or take it out of sources.",
        )


def execute_as_noop(rows: DataFrame) -> None:
    """Compute every row of the micro-batch and discard it.

    Called for a replayed batch of a stateful query whose rows are delivered already: Spark's state store commits batch N only
    if every partition of batch N was computed to its end. Raises what Spark raises.
    """
    rows.write.format("noop").mode("overwrite").save()


_ONLY_A_QUERY = "EXPLAIN CREATE OR REPLACE TEMPORARY VIEW penstock_transform AS\n"
_LINES_BEFORE = 1


def run_sql(spark: SparkSession, query: str) -> DataFrame:
    """Return the DataFrame of `query`. Raises Usage if it is wrong, or a statement that changes a catalog instead of a query."""
    _require_query(spark, query)
    try:
        frame = spark.sql(query)
        _ = frame.schema  # Spark Connect analyses only when it is asked for something
    except PySparkException as error:
        raise _wrong_sql(read_spark_error(scrub(str(error))), query) from error
    return frame


def _require_query(spark: SparkSession, query: str) -> None:
    """Raise Usage for anything but a query, by parsing it without running it: Spark runs `CREATE …` and the like on sight."""
    try:
        spark.sql(_ONLY_A_QUERY + query).collect()
    except PySparkException as error:
        spark_error = read_spark_error(scrub(str(error)))
        if spark_error.condition is None or not spark_error.condition.startswith("PARSE_"):
            return
        line = None if spark_error.line is None else spark_error.line - _LINES_BEFORE
        raise _wrong_sql(replace(spark_error, line=line), query) from error


def _wrong_sql(spark_error: SparkError, query: str) -> Usage:
    place = "" if spark_error.line is None else f" line {spark_error.line}, column {spark_error.column}"
    return Usage(
        f"transform.sql{place}: {spark_error.sentence}{_near(spark_error, query)}",
        remedy="Correct the query in the pipeline file; it must be one query that Spark SQL understands.",
    )


_HIDDEN = "\0"


def _near(spark_error: SparkError, query: str) -> str:
    lines = _with_secrets_marked(query).split("\n")
    if spark_error.line is None or not 0 < spark_error.line <= len(lines):
        return ""
    start = max(0, (spark_error.column or 1) - 40)
    near = re.sub(f"{_HIDDEN}+", MASK, lines[spark_error.line - 1][start : start + 80]).strip()
    return f" It is near `{near}`." if near else ""


def _with_secrets_marked(query: str) -> str:
    """Return `query` with other letters for its secrets, as many and in as many lines, so that no half of one is cut out."""
    for value in sorted(values_in(query), key=len, reverse=True):
        if len(value) >= SHORTEST_SCRUBBED:
            query = query.replace(value, re.sub(r"[^\n]", _HIDDEN, value))
    return query


_PYTHON_KEY = "transform.python"
_SIGNATURE = "The function must be def name(spark, sources: dict[str, DataFrame]) -> DataFrame."


def run_python(
    spark: SparkSession, sources: Mapping[SourceName, DataFrame], reference: str, *, modules: Path | None
) -> DataFrame:
    """Call the function at `reference`. Raises Usage (not found, not a function, no DataFrame) and Failed (it raised)."""
    function = load(reference, key=_PYTHON_KEY, modules=modules, is_kind=inspect.isfunction, kinds="functions")
    travel_by_value()
    if not callable(function):
        raise Usage(f"{_PYTHON_KEY} {reference} is {_kind(function)}, expected a function.", remedy=_SIGNATURE)
    _require_callable(reference, function)
    try:
        result = function(spark, dict(sources))
    except Exception as error:
        raise Failed(
            f"{_PYTHON_KEY} {reference} raised {raised(error)}",
            remedy="Correct the function; --debug shows the whole traceback.",
        ) from error
    if not isinstance(result, DataFrame):
        raise Usage(f"{_PYTHON_KEY} {reference} returned {_kind(result)}, expected a DataFrame.", remedy=_SIGNATURE)
    return result


def travel_by_value() -> None:
    """Pickle modules beside the pipeline file by value, because executors do not have that directory on their path."""
    for name in loaded_beside():
        cloudpickle.register_pickle_by_value(sys.modules[name])  # type: ignore[no-untyped-call]


def _require_callable(reference: str, function: Callable[..., object]) -> None:
    try:
        inspect.signature(function).bind(None, {})
    except TypeError as error:
        raise Usage(f"{_PYTHON_KEY} {reference} cannot be called with (spark, sources): {error}.", remedy=_SIGNATURE) from error
    except ValueError:
        return  # a built-in without a signature: the call shows whether it fits


def _kind(value: object) -> str:
    return "None" if value is None else f"a value of type {type(value).__name__}"
