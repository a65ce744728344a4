"""Opens a source `format: penstock` as a streaming DataFrame, and reads batches of it again."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession

from penstock.errors import DependencyMissing, Usage
from penstock.run.chain.table import nullable, open_chained
from penstock.source.chain.settings import COLUMNS, FIXED, data_source_options, settings_in
from penstock.source.pieces_again import rows_of_pieces
from penstock.source.python_source import can_read, open_python_source
from penstock.source.schema import parsed_schema
from penstock.spec.source import Source

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from penstock.core.model import OffsetRange


def read_chained(spark: SparkSession, name: str, source: Source, *, pipeline: str) -> DataFrame:
    """Return the DataFrame, with the alias `name`. The ledger and the newest marks are looked at for the columns.

    Raises DependencyMissing, Usage, and Retryable while the table has no columns.
    """
    if not can_read(spark):
        raise DependencyMissing(
            f"The table of a pipeline is read by a data source that needs Spark 4.2, and source {name!r} runs on Spark "
            f"{spark.version}.",
            remedy="Take a newer Spark.",
        )
    from penstock.run.chain.data_source import PenstockDataSource

    options = {**data_source_options(name, source), **_columns(spark, name, source, pipeline=pipeline)}
    return open_python_source(spark, name, PenstockDataSource, options, is_read="reads a pipeline's table", package="penstock")


def register_source(spark: SparkSession) -> None:
    """Let `spark` read the tables of pipelines: `spark.readStream.format("penstock").load("flights.yaml")`.

    Raises DependencyMissing for a Spark before 4.2.
    """
    if not can_read(spark):
        raise DependencyMissing(
            f"Format penstock needs Spark 4.2, and this is Spark {spark.version}.", remedy="Take a newer Spark."
        )
    from penstock.run.chain.data_source import PenstockDataSource

    spark.dataSource.register(PenstockDataSource)


def _columns(spark: SparkSession, name: str, source: Source, *, pipeline: str) -> Mapping[str, str]:
    """Return the options that say which columns the stream has."""
    table = open_chained(settings_in(data_source_options(name, source)))
    try:
        if table.pipeline == pipeline:
            raise Usage(
                f"sources.{name} reads pipeline {pipeline!r}, which is this one: it would read its own rows for ever.",
                remedy="Give this pipeline another name, or read another one.",
            )
        if source.schema_ddl is None:
            return {COLUMNS: table.columns()}
    finally:
        table.close()
    columns = parsed_schema(spark, f"sources.{name}.schema", source.schema_ddl)
    return {COLUMNS: nullable(json.dumps(columns)), FIXED: "true"}


class ChainRange:
    """The `ReadsRange` of a table that another pipeline fills. `schema`: the stream's columns."""

    def __init__(self, name: str, source: Source, schema: "StructType") -> None:
        settings = settings_in(data_source_options(name, source))
        self._settings = replace(settings, columns=nullable(schema.json()), has_fixed_columns=source.schema_ddl is not None)

    def rows(self, spark: SparkSession, offsets: "OffsetRange", files: Sequence[str]) -> DataFrame:  # noqa: ARG002 - of files
        """Return the rows. Raises what the reader raises for batches that are forgotten or taken back."""
        from penstock.run.chain.data_source import TableStreamReader

        start, end = (json.loads(at) if at else {} for at in (offsets.start, offsets.end))
        columns = self._settings.columns
        assert columns is not None
        return rows_of_pieces(spark, partial(TableStreamReader, self._settings), start, end, columns=columns)
