"""Publication of decided shares by tasks of Spark, instead of the driver: the sink's markers tell what is there.

Spark may run a share several times, at once or again. So a share is a `PublishTask`, which is visible once all the same.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.core.faults import FaultPoint, export_faults, import_faults
from penstock.core.publish_task import PublishTask
from penstock.errors import OutcomeUnknown, PenstockError
from penstock.spark.error import lacks_penstock, penstock_missing, read_spark_failure
from penstock.support.error_transport import errors_through_spark, from_task
from penstock.support.secret import scrub

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BEGIN = FaultPoint("publish.task", "A task begins to publish its share of a decided batch.")
REPORT = FaultPoint("publish.report", "A task has published its share, and Spark is about to be told.")

_NUMBER, _ALREADY = "number", "already"


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishPass:
    """The function that Spark runs in each task: it publishes the shares whose numbers it gets. Picklable."""

    shares: tuple[PublishTask, ...]
    faults: Mapping[str, str] = field(default_factory=lambda: dict(export_faults()))

    def __call__(self, batches: "Iterable[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        import_faults(self.faults)
        numbers = [number for batch in batches for number in batch.column(0).to_pylist()]
        already = [self._publish(self.shares[number]) for number in numbers]
        yield pa.RecordBatch.from_pydict({_NUMBER: pa.array(numbers, pa.int64()), _ALREADY: pa.array(already, pa.bool_())})

    @staticmethod
    def _publish(share: PublishTask) -> bool:
        with errors_through_spark():
            with BEGIN.around():
                already = share.publish()
            with REPORT.around():
                return already


def publish_in_tasks(spark: "SparkSession", shares: Sequence[PublishTask]) -> Sequence[bool]:
    """Run one task for each of `shares`, and return what each answered. Classic and Connect sessions.

    Raises a task's own error, and OutcomeUnknown where Spark gave up: each share may be published.
    """
    count = len(shares)
    job = spark.range(0, count, 1, count).mapInArrow(PublishPass(shares=tuple(shares)), f"{_NUMBER} LONG, {_ALREADY} BOOLEAN")
    try:
        answers = {row[_NUMBER]: row[_ALREADY] for row in job.collect()}
    except Exception as cause:
        raise _failure(cause) from cause
    return [answers[number] for number in range(count)]


def _failure(cause: Exception) -> PenstockError:
    transported = from_task(str(cause))
    if transported is not None:
        return transported
    if lacks_penstock(str(cause)):
        return penstock_missing("Spark could not publish the batch", str(cause))
    return OutcomeUnknown(
        f"Spark gave up tasks that publish a decided batch: {read_spark_failure(scrub(str(cause))).sentence}",
        remedy="Try again: markers tell which shares are published. If it happens again, look into the logs of the executors, or "
        "set `publish_on: driver`.",
    )
