"""A driver that waits for its turn: everything that a first batch costs once in a process is done before."""

import logging
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from py4j.protocol import Py4JNetworkError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from penstock.errors import PenstockError, Retryable
from penstock.run.assembly import DeliveryPlan
from penstock.run.connect import is_of_client
from penstock.run.delivery import Delivery
from penstock.run.query_facts import facts_of_pipeline
from penstock.run.required_guarantees import require_demanded
from penstock.run.start import frame_of
from penstock.source.kafka.decode import decode_passes
from penstock.spec.pipeline import PipelineSettings
from penstock.spec.sink import Parquet
from penstock.support.secret import scrub

_log = logging.getLogger(__name__)
_BATCHES = 2
_KEEP_S = 45.0
"""Spark ends Python workers that had nothing to do for a minute; other ones have to import everything that stages a batch."""


class Warmth:
    """What a driver that waits for its turn has done before its first batch.

    Spark has analysed the query, its guarantee was checked, and two small batches were delivered from and to a scratch
    directory. Nothing is read from the sources. On a cluster nothing is delivered, as executors do not see the directory.
    """

    def __init__(
        self,
        settings: PipelineSettings,
        plan: DeliveryPlan,
        spark: SparkSession,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Raise what a start would raise for the query and its guarantee."""
        self._spark, self._clock = spark, clock
        decoding = decode_passes(spark, settings.sources)
        frame, _ = frame_of(settings, spark, modules=plan.modules, decoding=decoding)
        require_demanded(facts_of_pipeline(settings, frame, spark), plan)
        self._delivers = not is_of_client(spark) and (spark.sparkContext.master or "").startswith("local")
        self._deliver(batches=_BATCHES)

    def keep(self) -> None:
        """Deliver another small batch if the last one was long ago. Raises Retryable if Spark's Java process ended."""
        try:
            self._spark.version  # noqa: B018 - asks the Java process
        except (Py4JNetworkError, ConnectionError) as gone:
            raise Retryable("Spark's Java process ended before the driver's turn came.", remedy="Start again.") from gone
        if self._clock() - self._delivered_s >= _KEEP_S:
            self._deliver(batches=1)

    def _deliver(self, *, batches: int) -> None:
        if self._delivers:
            _deliver_on_scratch(self._spark, batches=batches)
        self._delivered_s = self._clock()


def _deliver_on_scratch(spark: SparkSession, *, batches: int) -> None:
    """Deliver one batch staged by tasks, then some staged by the driver. A failure costs speed alone, and is logged."""
    try:
        with tempfile.TemporaryDirectory(prefix="penstock-warm-up-") as scratch:
            _deliver(spark, Path(scratch), batches=batches)
    except (PenstockError, PySparkException, Py4JNetworkError, OSError) as error:
        _log.warning("The driver was not warmed up, so its first batch takes longer: %s", scrub(str(error)))


def _deliver(spark: SparkSession, scratch: Path, *, batches: int) -> None:
    files = scratch / "files"
    files.mkdir()
    for number in range(batches):
        (files / f"{number}.csv").write_text("1,one\n")
    read = spark.readStream.format("csv").schema("number INT, text STRING").option("maxFilesPerTrigger", 1)
    writer = read.load(files.as_uri()).writeStream.trigger(availableNow=True)
    delivery = Delivery("warm-up", home=scratch / "home", sinks={"files": Parquet(accounts={"one": scratch / "one"})})
    try:
        delivery.start(writer).awaitTermination()
    finally:
        delivery.release()
