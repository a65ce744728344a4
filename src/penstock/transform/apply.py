"""Application of a pipeline file's `transform:`: SQL over the sources' views, a Python function, or nothing."""

from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from penstock.core.model import SourceName
from penstock.errors import Usage
from penstock.spec.pipeline import Transform
from penstock.transform.plan import plan_of, source_order
from penstock.transform.python import run_python
from penstock.transform.sql import run_sql


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
            "The transform yields a table that does not grow: it reads none of the sources.",
            remedy=f"Read from {' or '.join(sources)}.",
        )
    _require_all_used(frame, sources, "transform" if transform is not None else "sources")
    return frame


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
