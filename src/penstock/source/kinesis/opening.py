"""Opens a source as a streaming DataFrame of the records of a stream."""

from pyspark.sql import DataFrame, SparkSession

from penstock.errors import DependencyMissing
from penstock.source.kinesis.streams import data_source_options
from penstock.source.python_source import can_read, open_python_source
from penstock.spec.source import Source


def read_kinesis(spark: SparkSession, name: str, source: Source) -> DataFrame:
    """Return the DataFrame, with the alias `name`; nothing is asked yet. Raises DependencyMissing."""
    if not can_read(spark):
        raise DependencyMissing(
            f"Kinesis is read by a data source that needs Spark 4.2, and source {name!r} runs on Spark {spark.version}.",
            remedy="Take a newer Spark.",
        )
    from penstock.source.kinesis.data_source import KinesisDataSource  # noqa: PLC0415 - Spark 4.2 has what it imports

    options = data_source_options(name, source)
    return open_python_source(spark, name, KinesisDataSource, options, is_read="reads Kinesis", package="'penstock[kinesis]'")
