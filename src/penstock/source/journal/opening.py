"""Opens a source as a streaming DataFrame of the events of journals."""

from pyspark.sql import DataFrame, SparkSession

from penstock.errors import DependencyMissing
from penstock.source.journal.journals import data_source_options
from penstock.source.python_source import can_read, open_python_source
from penstock.spec.source import Source


def read_journals(spark: SparkSession, name: str, source: Source, *, pipeline: str) -> DataFrame:
    """Return the DataFrame, with the alias `name`; no file is looked at yet. Raises DependencyMissing."""
    if not can_read(spark):
        raise DependencyMissing(
            f"A journal is read by a data source that needs Spark 4.2, and source {name!r} runs on Spark {spark.version}.",
            remedy="Take a newer Spark.",
        )
    from penstock.source.journal.data_source import JournalDataSource  # noqa: PLC0415 - Spark 4.2 has what it imports

    options = data_source_options(name, source, pipeline=pipeline)
    return open_python_source(spark, name, JournalDataSource, options, is_read="reads a journal", package="penstock")
