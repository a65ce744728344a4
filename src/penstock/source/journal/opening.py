"""Opens a source as a streaming DataFrame of the events of journals."""

from pyspark.sql import DataFrame, SparkSession

from penstock.errors import DependencyMissing
from penstock.source.journal.journals import data_source_options
from penstock.source.journal.settings import FORMAT
from penstock.source.kafka.reader.opening import can_read
from penstock.spark.error import lacks_penstock
from penstock.spec.source import Source


def read_journals(spark: SparkSession, name: str, source: Source, *, pipeline: str) -> DataFrame:
    """Return the DataFrame, with the alias `name`; no file is looked at yet. Raises DependencyMissing."""
    if not can_read(spark):
        raise DependencyMissing(
            f"A journal is read by a data source that needs Spark 4.2, and source {name!r} runs on Spark {spark.version}.",
            remedy="Take a newer Spark.",
        )
    from penstock.source.journal.data_source import JournalDataSource  # noqa: PLC0415 - Spark 4.2 has what it imports

    spark.dataSource.register(JournalDataSource)
    reader = spark.readStream.format(FORMAT).options(**data_source_options(name, source, pipeline=pipeline))
    try:
        frame = reader.load().alias(name)
        _ = frame.schema  # Spark Connect reports errors only when it is asked for something
    except Exception as error:
        if lacks_penstock(str(error)):
            raise DependencyMissing(
                f"Source {name!r} reads a journal, and Penstock is not installed where Spark's driver runs.",
                remedy="Install it there and on every executor: pip install penstock.",
            ) from error
        raise
    return frame
