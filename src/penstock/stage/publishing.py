"""Publication of decided batches by tasks of Spark, instead of the driver.

Spark may run a task several times, at once or again. So it runs a `PublishTask`, whose rows are visible once all the same.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.core.faults import FaultPoint, export_faults, import_faults
from penstock.core.publish_task import Answer, PublishTask
from penstock.errors import OutcomeUnknown, PenstockError
from penstock.spark.error import lacks_penstock, penstock_missing, read_spark_failure
from penstock.support.error_transport import errors_through_spark, from_task
from penstock.support.secret import scrub

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BEGIN = FaultPoint("publish.task", "A task begins to publish its share of a decided batch.")
REPORT = FaultPoint("publish.report", "A task has published its share, and Spark is about to be told.")

_NUMBER, _ANSWER = "number", "answer"


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishPass:
    """The function that Spark runs in each task: it runs those of `tasks` whose numbers it gets. Picklable."""

    tasks: tuple[PublishTask, ...]
    faults: Mapping[str, str] = field(default_factory=lambda: dict(export_faults()))

    def __call__(self, batches: "Iterable[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        import_faults(self.faults)
        numbers = [number for batch in batches for number in batch.column(0).to_pylist()]
        answers = [json.dumps(self._run(self.tasks[number])) for number in numbers]
        yield pa.RecordBatch.from_pydict({_NUMBER: pa.array(numbers, pa.int64()), _ANSWER: pa.array(answers, pa.string())})

    @staticmethod
    def _run(task: PublishTask) -> Answer:
        with errors_through_spark():
            with BEGIN.around():
                answer = task.run()
            with REPORT.around():
                return answer


def publish_in_tasks(spark: "SparkSession", tasks: Sequence[PublishTask]) -> Sequence[Answer]:
    """Run each of `tasks` in a task of Spark, and return what each answered. Classic and Connect sessions.

    Raises a task's own error, and OutcomeUnknown where Spark gave up: any of them may have published.
    """
    count = len(tasks)
    job = spark.range(0, count, 1, count).mapInArrow(PublishPass(tasks=tuple(tasks)), f"{_NUMBER} LONG, {_ANSWER} STRING")
    try:
        answers = {row[_NUMBER]: json.loads(row[_ANSWER]) for row in job.collect()}
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
        remedy="Try again: what is published is not doubled. If it happens again, look into the logs of the executors, or "
        "set `publish_on: driver`.",
    )
