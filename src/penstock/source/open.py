"""Opens the sources of a pipeline: one streaming DataFrame each, known to SQL under its name."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamReader

from penstock.core.model import SourceName
from penstock.errors import DependencyMissing, Usage
from penstock.source.chain.settings import is_chained
from penstock.source.guarantee import BINARY_FILE_SCHEMA, INFERENCE_CONF, needs_schema, no_schema, unknown_format
from penstock.source.input_path import path_missing, require_any
from penstock.source.journal.journals import is_journal
from penstock.source.journal.opening import read_journals
from penstock.source.kafka.connector import ENVIRONMENT, coordinate
from penstock.source.kafka.decode import decode_passes, decoded
from penstock.source.kafka.options import is_kafka, reader_options
from penstock.source.kafka.reader.opening import read_by_python
from penstock.source.kinesis.opening import read_kinesis
from penstock.source.kinesis.streams import is_kinesis
from penstock.source.naming import stream_reader
from penstock.source.python_source import can_read
from penstock.source.rows_again import with_all_columns_read
from penstock.source.schema import bad_schema, schema_argument
from penstock.source.unfit_rows import counts_unfit_rows, with_unfit_rows_counted
from penstock.spark.error import SparkError, connector_remedy, read_spark_error
from penstock.spec.rule import Rule
from penstock.spec.source import Source
from penstock.support.secret import scrub

if TYPE_CHECKING:
    from penstock.registry.decoding import DecodePass

RowFilter: TypeAlias = Callable[[SourceName, DataFrame, Mapping[str, Rule]], DataFrame]
"""Returns the rows of a source that meet its rules."""
Opener: TypeAlias = Callable[[SparkSession, str, Source], DataFrame]
"""Opens a source of one format, by its name in the pipeline."""

SCALA = "2.13"
"""The Scala version of every Spark 4."""
_SCHEMA_CONDITIONS = frozenset({"PARSE_SYNTAX_ERROR", "UNSUPPORTED_DATATYPE", "INVALID_JSON_SCHEMA_MAP_TYPE"})


def open_sources(
    spark: SparkSession,
    sources: Mapping[str, Source],
    *,
    decoding: "Mapping[SourceName, DecodePass] | None" = None,
    pipeline: str = "",
    row_filter: "RowFilter | None" = None,
    open_chained: Opener | None = None,
) -> dict[SourceName, DataFrame]:
    """Return a streaming DataFrame for each source, in their order, each registered as a temporary view of its name.

    Nothing is read yet beyond what Spark needs to know the columns. Each DataFrame carries its name as an alias right above the
    source itself, by which `penstock.transform.plan` finds it again in any plan. `decoding`: the result of an earlier
    `decode_passes`. `pipeline`: by whose name journals are read. `row_filter` keeps the rows that meet the source's rules.
    `open_chained` opens tables that pipelines fill. Raises Usage, DependencyMissing, what `decode_passes` and openers raise.
    """
    require_any(sources)
    passes = decode_passes(spark, sources) if decoding is None else decoding
    opened = {
        SourceName(name): open_source(
            spark,
            name,
            source,
            decode_pass=passes.get(SourceName(name)),
            pipeline=pipeline,
            row_filter=row_filter,
            open_chained=open_chained,
        )
        for name, source in sources.items()
    }
    for name, frame in opened.items():
        frame.createOrReplaceTempView(name)
    return opened


def open_source(
    spark: SparkSession,
    name: str,
    source: Source,
    *,
    decode_pass: "DecodePass | None" = None,
    pipeline: str = "",
    row_filter: "RowFilter | None" = None,
    open_chained: Opener | None = None,
) -> DataFrame:
    """Return the streaming DataFrame of one source. Raises as `open_sources`."""
    _require_schema(spark, name, source)
    if is_journal(source):
        frame = read_journals(spark, name, source, pipeline=pipeline)
    elif is_kinesis(source):
        frame = read_kinesis(spark, name, source)
    elif is_chained(source) and open_chained is not None:
        frame = open_chained(spark, name, source)
    else:
        frame = _opened(spark, name, source)
    rows = frame if decode_pass is None else decoded(name, frame, decode_pass)
    if source.expect:  # before the watermark: a time that breaks a rule must not move it
        assert row_filter is not None
        rows = row_filter(SourceName(name), with_all_columns_read(name, source, rows), source.expect)
    return _with_watermark(rows, name, source)


def _opened(spark: SparkSession, name: str, source: Source) -> DataFrame:
    if is_kafka(source) and source.reader == "python":
        return read_by_python(spark, name, source)
    reader = _with_schema(stream_reader(spark, name).options(**reader_options(source)), name, source)
    try:
        frame = _load(reader, source).alias(name)
        _ = frame.schema  # Spark Connect reports errors only when it is asked for something
    except Exception as error:
        explained = _explained(name, source, read_spark_error(scrub(str(error))), version=spark.version)
        if not (isinstance(explained, DependencyMissing) and _may_do_without(source) and can_read(spark)):
            raise explained from error
        return read_by_python(spark, name, source)
    counted = counts_unfit_rows(spark, source, frame.schema)
    return with_unfit_rows_counted(spark, name, source, frame.schema) if counted else frame


def _may_do_without(source: Source) -> bool:
    """Return whether Penstock's own reader may take the place of Spark's connector."""
    return is_kafka(source) and source.reader == "auto"


def _load(reader: DataStreamReader, source: Source) -> DataFrame:
    if source.table is not None:
        return reader.table(source.table)
    return reader.format(source.format or "").load(source.path)


def _require_schema(spark: SparkSession, name: str, source: Source) -> None:
    if source.schema_ddl is not None or source.format is None or not needs_schema(source.format):
        return
    if str(spark.conf.get(INFERENCE_CONF, "false")).lower() != "true":
        raise no_schema(name, source.format)


def _with_schema(reader: DataStreamReader, name: str, source: Source) -> DataStreamReader:
    text = source.schema_ddl
    if text is None:
        return reader.schema(BINARY_FILE_SCHEMA) if (source.format or "").lower() == "binaryfile" else reader
    try:
        return reader.schema(schema_argument(text))
    except Exception as error:
        raise bad_schema(f"sources.{name}.schema", text, read_spark_error(scrub(str(error)))) from error


def _with_watermark(frame: DataFrame, name: str, source: Source) -> DataFrame:
    watermark = source.watermark
    if watermark is None:
        return frame
    try:
        late = frame.withWatermark(watermark.column, f"{watermark.delay} milliseconds")
        _ = late.schema
    except Exception as error:
        reason = read_spark_error(scrub(str(error))).sentence
        raise Usage(
            f"sources.{name}.watermark cannot be put on column {watermark.column!r}: {reason}",
            remedy=f"Name a TIMESTAMP column of the source; it has {', '.join(frame.columns)}.",
        ) from error
    return late


def _explained(name: str, source: Source, spark_error: SparkError, *, version: str) -> Usage | DependencyMissing:
    condition = spark_error.condition or ""
    if condition == "PATH_NOT_FOUND":
        return path_missing(name, source)
    if condition in _SCHEMA_CONDITIONS and source.schema_ddl is not None and source.table is None:
        return bad_schema(f"sources.{name}.schema", source.schema_ddl, spark_error)
    if condition.endswith("_DATA_SOURCE_NOT_ENABLED"):
        return _not_enabled(name, source, version)
    if "DATA_SOURCE_NOT_FOUND" in condition:
        return unknown_format(name, source.format or "")
    if "does not support streamed reading" in spark_error.message:
        return Usage(
            f"sources.{name}.format {source.format} cannot be read as a stream.",
            remedy="Use a streaming format; a table that only joins the stream can be named in transform.sql.",
        )
    return Usage(
        f"sources.{name} ({source.table or source.format}) cannot be opened: {spark_error.sentence}",
        remedy=connector_remedy(spark_error.message) or "Correct the source's settings.",
    )


def _not_enabled(name: str, source: Source, version: str) -> DependencyMissing:
    if is_kafka(source):
        return DependencyMissing(
            f"sources.{name} reads Kafka, and this Spark session was started without Spark's Kafka connector.",
            remedy="Take Penstock's own reader (`reader: python`, Spark 4.2), or start the session with `--packages "
            f"{coordinate(SCALA, version)}` (or `--jars`, where no repository is reached); one that Penstock starts gets it by "
            f"itself, or from the directory that {ENVIRONMENT} names.",
        )
    return DependencyMissing(
        f"sources.{name}.format {source.format} needs a jar that Spark does not carry.",
        remedy=f'Add spark: {{packages: ["org.apache.spark:spark-avro_{SCALA}:{version}"]}} to the pipeline file.',
    )
