"""A driver that waits for its turn: everything that a first batch costs once in a process is done before."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from py4j.protocol import Py4JNetworkError
from pyspark.sql import DataFrame, SparkSession

from penstock.errors import Retryable
from penstock.run.assembly import DeliveryPlan
from penstock.run.connect import is_of_client
from penstock.run.query_facts import facts_of_pipeline
from penstock.run.required_guarantees import require_demanded
from penstock.run.start import frame_of
from penstock.source.kafka.decode import decode_passes
from penstock.spec.pipeline import PipelineSettings


def warm_up(settings: PipelineSettings, plan: DeliveryPlan, spark: SparkSession) -> None:
    """Have Spark analyse the query, check its guarantee, and run a batch of a few rows that nobody gets.

    Raises what a start would raise for the query and its guarantee. Nothing is read from the sources.
    """
    decoding = decode_passes(spark, settings.sources)
    frame, _ = frame_of(settings, spark, modules=plan.modules, decoding=decoding)
    require_demanded(facts_of_pipeline(settings, frame, spark), plan)
    if not is_of_client(spark):
        _run_a_batch(spark)


def require_spark(spark: SparkSession) -> None:
    """Raise Retryable if Spark's Java process ended while its driver waits."""
    try:
        spark.version  # noqa: B018 - asks the Java process
    except (Py4JNetworkError, ConnectionError) as gone:
        raise Retryable("Spark's Java process ended before the driver's turn came.", remedy="Start again.") from gone


def _run_a_batch(spark: SparkSession) -> None:
    """Run one micro-batch through Spark's streaming engine, a function of this process, and a Python worker."""

    def deliver(rows: DataFrame, _batch_id: int) -> None:
        rows.mapInArrow(_same, rows.schema).toArrow()

    with tempfile.TemporaryDirectory(prefix="penstock-warm-") as checkpoint:
        rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
        writer = rows.writeStream.foreachBatch(deliver).option("checkpointLocation", Path(checkpoint).as_uri())
        query = writer.trigger(once=True).start()
        query.awaitTermination()


def _same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches
