"""Opens a source as a streaming DataFrame that Penstock's own Kafka reader fills."""

import logging
from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession

from penstock.errors import DependencyMissing, Usage
from penstock.source.kafka.options import fetch_options, reader_options
from penstock.source.kafka.reader.settings import CLIENT, NAME
from penstock.source.python_source import can_read, open_python_source
from penstock.spec.kafka_options import CONSUMER, python_complaints
from penstock.spec.source import Source

_log = logging.getLogger(__name__)


def read_by_python(spark: SparkSession, name: str, source: Source) -> DataFrame:
    """Return the DataFrame, with the alias `name`; the brokers are not asked yet. Raises DependencyMissing, Usage."""
    if not can_read(spark):
        raise DependencyMissing(
            f"Penstock's own reader of Kafka needs Spark 4.2, and source {name!r} runs on Spark {spark.version}.",
            remedy="Take a newer Spark, or Spark's connector (`reader: spark`).",
        )
    from penstock.source.kafka.reader.data_source import KafkaDataSource  # noqa: PLC0415 - Spark 4.2 has what it imports

    _log.info("source %s is read by Penstock's own reader", name)
    return open_python_source(
        spark,
        name,
        KafkaDataSource,
        data_source_options(name, source),
        is_read="is read by Penstock's own reader",
        package="'penstock[kafka]'",
    )


def data_source_options(name: str, source: Source) -> Mapping[str, str]:
    """Return the options of the data source for `source`. Raises Usage for what the reader does not support."""
    complaint = next(python_complaints(source.options), None)
    if complaint is not None:
        raise Usage(f"sources.{name}.options.{'.'.join(map(str, complaint.at))} {complaint.message}.", remedy=complaint.remedy)
    texts = {key: value for key, value in reader_options(source).items() if not key.lower().startswith(CONSUMER)}
    prefix = next((value for key, value in texts.items() if key.lower() == "groupidprefix"), None)
    client = {**({} if prefix is None else {"group.id": prefix}), **fetch_options(name, source)}
    return {**texts, NAME: name, **{f"{CLIENT}{key}": value for key, value in client.items()}}
