"""Joins what the delivery and Spark report of a batch, each in its own thread, to one value."""

import threading
from collections.abc import Callable
from dataclasses import dataclass

from penstock.core.model import BatchId, Generation
from penstock.observe.batch_life import Step, steps_of
from penstock.observe.batch_record import SparkRecord
from penstock.observe.export.facts import BatchEnded

_WAITING = 3
"""As many batches wait for what Spark tells of them, which it does a moment after each."""

_Key = tuple[Generation, BatchId]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredBatch:
    """A batch with its steps. `spark` is None where Spark did not report it in time."""

    batch: BatchEnded
    spark: SparkRecord | None = None

    @property
    def steps(self) -> tuple[Step, ...]:
        record = self.batch.record
        return () if record is None else tuple(steps_of(record, self.spark, stage_ms=record.stage_ms))

    @property
    def duration_ms(self) -> int:
        """The time from the first measured step to the end of the last one."""
        return max((step.after_ms + step.duration_ms for step in self.steps), default=0)

    @property
    def began_ms(self) -> int | None:
        """When the batch began, in Unix time; None where nobody measured it."""
        record = self.batch.record
        if self.spark is not None:
            return self.spark.began_ms
        return None if record is None else record.at_ms - self.duration_ms


class BatchJoiner:
    """Calls `on_batch` once for each batch: when both have reported it, or when too many others wait, or at the end."""

    def __init__(self, on_batch: Callable[[MeasuredBatch], None]) -> None:
        self._on_batch, self._turn = on_batch, threading.Lock()
        self._batches: dict[_Key, BatchEnded] = {}
        self._steps: dict[_Key, SparkRecord] = {}

    def batch(self, batch: BatchEnded) -> None:
        """Take what the delivery tells."""
        record = batch.record
        if record is None:
            self._on_batch(MeasuredBatch(batch=batch))
            return
        key = record.generation, record.batch_id
        with self._turn:
            spark = self._steps.pop(key, None)
            if spark is None:
                self._batches[key] = batch
            late = [self._batches.pop(old) for old in list(self._batches)[:-_WAITING]]
        if spark is not None:
            self._on_batch(MeasuredBatch(batch=batch, spark=spark))
        for one in late:
            self._on_batch(MeasuredBatch(batch=one))

    def steps(self, spark: SparkRecord) -> None:
        """Take what Spark tells."""
        key = spark.generation, spark.batch_id
        with self._turn:
            batch = self._batches.pop(key, None)
            if batch is None:
                self._steps[key] = spark
                for old in list(self._steps)[:-_WAITING]:
                    del self._steps[old]
        if batch is not None:
            self._on_batch(MeasuredBatch(batch=batch, spark=spark))

    def end(self) -> None:
        """Pass on the batches of which one report is missing: no further one comes."""
        with self._turn:
            left, self._batches = list(self._batches.values()), {}
        for batch in left:
            self._on_batch(MeasuredBatch(batch=batch))
