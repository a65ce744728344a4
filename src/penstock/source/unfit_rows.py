"""Counts rows of text files that do not fit the schema, of which Spark makes NULL in silence, in the pass that reads them anyway.

Spark's column for corrupt records is added to the schema, counted right above the source, and dropped: the rows stay as they are.
"""

from collections.abc import Iterator, Mapping, Sequence

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's usual name
from pyspark.sql.types import StringType, StructField, StructType

from penstock.source.naming import stream_reader
from penstock.spark.column_name import quoted
from penstock.spec.file_options import CORRUPT, MODE
from penstock.spec.source import Source

_COLUMN = "_penstock_unfit"
_METRIC = "penstock_unfit_"
_FORMATS = frozenset({"csv", "json", "xml"})
_CORRUPT_CONF = "spark.sql.columnNameOfCorruptRecord"
_PARTIAL_CONF = "spark.sql.json.enablePartialResults"
_CHOSEN = frozenset({MODE, "singlevariantcolumn"})
"""Options, in lower case, by which a pipeline file says itself what becomes of such rows."""


def counts_unfit_rows(spark: SparkSession, source: Source, schema: StructType) -> bool:
    """Return whether rows that do not fit may be counted: nobody said what becomes of them, and counting changes no row.

    On Spark Connect they are not: the driver, whose process is another one, cannot ask for the count.
    """
    options = {name.lower(): value for name, value in source.options.items()}
    own = options.get(CORRUPT.lower()) or spark.conf.get(_CORRUPT_CONF, "_corrupt_record")
    whole = str(spark.conf.get(_PARTIAL_CONF, "true")).lower() == "true"
    return (
        (source.format or "").lower() in _FORMATS
        and hasattr(spark, "_jvm")
        and whole
        and bool(schema.names)
        and not _CHOSEN & options.keys()
        and not {str(own), _COLUMN} & set(schema.names)
    )


def unfit_rows_in(spark: SparkSession, source: Source, schema: StructType, files: Sequence[str]) -> tuple[int, int]:
    """Return how many rows of `files`, which are below the source's path, do not fit `schema`, and how many there are."""
    options = {**source.options, CORRUPT: _COLUMN, "basePath": source.path or ""}
    rows = spark.read.options(**options).schema(_with_column(schema)).format(source.format or "").load(list(files))
    unfit, every, _ = rows.agg(F.count(_COLUMN), F.count("*"), F.count_if(_has_no_ends(schema))).first() or (0, 0, 0)
    return unfit, every


def with_unfit_rows_counted(spark: SparkSession, name: str, source: Source, schema: StructType) -> DataFrame:
    """Return the stream of a source of these columns, with its alias, whose query counts the rows that do not fit `schema`."""
    reader = stream_reader(spark, name).options(**{**source.options, CORRUPT: _COLUMN}).schema(_with_column(schema))
    frame = reader.format(source.format or "").load(source.path).alias(name)
    return frame.observe(f"{_METRIC}{name}", F.count(_COLUMN), F.count_if(_has_no_ends(schema))).drop(_COLUMN)


def _with_column(schema: StructType) -> StructType:
    """Return `schema` with the column in front: Spark moves columns of the path, also later found ones, behind all others."""
    return StructType([StructField(_COLUMN, StringType()), *schema.fields])


def _has_no_ends(schema: StructType) -> Column:
    """Return a predicate over the first and the last column: Spark refuses to read the added one and no other of the files."""
    return F.col(quoted(schema.names[0])).isNull() & F.col(quoted(schema.names[-1])).isNull()


def unfit_warnings(observed: Mapping[str, int]) -> Iterator[str]:
    """Yield a warning for each source of which a batch had rows that do not fit. `observed`: counts by the name of the metric."""
    for metric, count in observed.items():
        if metric.startswith(_METRIC) and count:
            name = metric.removeprefix(_METRIC)
            yield unfit_warning(name, f"{count:,} rows do" if count > 1 else "1 row does")


def unfit_warning(name: str, rows_do: str) -> str:
    """Return the sentences about rows of source `name` that do not fit."""
    return (
        f"{rows_do} not fit sources.{name}.schema: what Spark cannot read of them is NULL. Correct the schema or the files. In "
        f"sources.{name}.options, `mode: FAILFAST` stops at such a row, and `mode: PERMISSIVE` accepts it without a warning."
    )
