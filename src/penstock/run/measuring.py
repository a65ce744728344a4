"""Measures what the protocol does not: the publication into each sink, and the steps that Spark itself takes."""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError
from pyspark.sql.streaming.query import StreamingQuery

from penstock.commit.outcome import Delivered
from penstock.core.model import BatchId, Generation, SinkName
from penstock.observe.batch_record import BatchRecords, DeliveryRecord, SparkRecord
from penstock.observe.state_samples import OperatorSample, StateSample, StateSamples

if TYPE_CHECKING:
    from penstock.run.open_delivery import OpenDelivery


class PublicationTimes:
    """Measures publications: `sink_ms` says how long the newest one into each sink took. Sinks may publish side by side."""

    def __init__(self) -> None:
        self.sink_ms: dict[SinkName, int] = {}

    @contextmanager
    def __call__(self, sink: SinkName) -> Iterator[None]:
        """Measure the publication that the context is around."""
        began_s = time.monotonic()
        try:
            yield
        finally:
            self.sink_ms[sink] = round(1000 * (time.monotonic() - began_s))


def record_of(
    delivered: Delivered,
    *,
    generation: Generation,
    rows_read: int | None,
    path: str,
    times: PublicationTimes,
    warnings: Sequence[str],
) -> DeliveryRecord:
    """Return what is noted of a batch that every sink shows."""
    return DeliveryRecord(
        generation=generation,
        batch_id=delivered.batch.batch_id,
        at_ms=time.time_ns() // 1_000_000,
        rows_read=rows_read,
        stage_ms=delivered.stage_ms,
        decide_ms=delivered.decide_ms,
        publish_ms=delivered.publish_ms,
        sink_ms={} if delivered.already else dict(times.sink_ms),
        already=delivered.already,
        path=path,
        warnings=tuple(warnings),
    )


class SparkSteps:
    """Notes what Spark measured of a query's batches and state, each once. Of a client of Spark Connect it notes nothing."""

    def __init__(
        self,
        streaming: StreamingQuery,
        records: BatchRecords,
        samples: StateSamples,
        *,
        on_record: Callable[[SparkRecord], None] | None = None,
    ) -> None:
        self._java: Any = getattr(streaming, "_jsq", None)
        self._on_record = on_record
        self._records, self._samples, self._at, self._batch_id = records, samples, "", -1

    def note(self, generation: Generation, *, delivered: int | None) -> None:
        """Note the batches that ended since the last call. Spark is asked only if `delivered`, the newest, is not noted yet."""
        if delivered is None or delivered <= self._batch_id:
            return
        try:
            for progress in self._fresh():
                found = spark_record(progress, generation=generation)
                if found is not None:
                    self._records.write(found)
                    if self._on_record is not None:
                        self._on_record(found)
                    self._batch_id = found.batch_id
                    if (sample := state_sample(progress, generation=generation)) is not None:
                        self._samples.write(sample)
        except (Py4JError, OSError, ValueError, LookupError, TypeError, AttributeError):
            return  # Spark is gone, or of another version: nothing relies on the notes

    def _fresh(self) -> Sequence[Mapping[str, Any]]:
        """Return the progress since the last call, the oldest first. Spark's times are ISO texts of one form."""
        newest = None if self._java is None else self._java.lastProgress()
        if newest is None or (at := str(newest.timestamp())) <= self._at:
            return ()
        before, self._at = self._at, at
        progress: Mapping[str, Any] = json.loads(str(newest.json()))
        return (progress,) if progress["batchId"] <= self._batch_id + 1 else self._since(before)

    def _since(self, at: str) -> Sequence[Mapping[str, Any]]:
        found = list[Mapping[str, Any]]()
        recent = self._java.recentProgress()
        for number in range(len(recent) - 1, -1, -1):
            if str(recent[number].timestamp()) <= at:
                break
            found.append(json.loads(str(recent[number].json())))
        return found[::-1]


class BusyLook:
    """Says whether a query has something to do, for `Observation.watch`: a batch, a publication, or a trigger that goes on."""

    def __init__(self, streaming: StreamingQuery, opened: "Callable[[], OpenDelivery | None]") -> None:
        self._streaming, self._opened = streaming, opened
        self._java: Any = getattr(streaming, "_jsq", None)
        self._ended: str | None = None

    def __call__(self) -> tuple[bool, int | None]:
        """Return whether it is busy, and with which batch. A trigger that ended since the last call was not stuck."""
        opened = self._opened()
        if opened is None:
            return False, None
        if opened.delivering is not None:
            return True, opened.delivering
        if not opened.is_published_within(0):
            return True, opened.summary.last_batch_id
        newest = None if self._java is None else self._java.lastProgress()
        before, self._ended = self._ended, None if newest is None else str(newest.timestamp())
        return self._ended == before and bool(self._streaming.status["isTriggerActive"]), None


def spark_record(progress: Mapping[str, Any], *, generation: Generation) -> SparkRecord | None:
    """Return the record of one progress of Spark's; None for one of a time without a batch. Raises LookupError, ValueError."""
    spent = progress["durationMs"]
    if "addBatch" not in spent:
        return None
    states = progress.get("stateOperators") or ()
    return SparkRecord(
        generation=generation,
        batch_id=BatchId(progress["batchId"]),
        began_ms=_time_ms(progress["timestamp"]),
        fetch_ms=spent.get("latestOffset", 0),
        offset_log_ms=spent.get("walCommit", 0),
        plan_ms=spent.get("getBatch", 0) + spent.get("queryPlanning", 0),
        execute_ms=spent["addBatch"],
        commit_log_ms=spent.get("commitOffsets", 0) + spent.get("commitBatch", 0),
        total_ms=spent.get("triggerExecution", 0),
        state_rows=sum(each["numRowsTotal"] for each in states) if states else None,
        state_bytes=sum(each["memoryUsedBytes"] for each in states) if states else None,
        watermark=(progress.get("eventTime") or {}).get("watermark"),
    )


def state_sample(progress: Mapping[str, Any], *, generation: Generation) -> StateSample | None:
    """Return what one progress of Spark's says of the query's state; None if it keeps none. Raises LookupError, ValueError."""
    states = progress.get("stateOperators") or ()
    if not states:
        return None
    return StateSample(
        generation=generation,
        batch_id=BatchId(progress["batchId"]),
        at_ms=_time_ms(progress["timestamp"]) + progress["durationMs"].get("triggerExecution", 0),
        operators=tuple(map(_operator_sample, states)),
    )


def _operator_sample(state: Mapping[str, Any]) -> OperatorSample:
    return OperatorSample(
        name=state.get("operatorName", ""),
        rows=state["numRowsTotal"],
        memory_bytes=state["memoryUsedBytes"],
        disk_bytes=(state.get("customMetrics") or {}).get(_ROCKSDB_TABLES),
        rows_updated=state.get("numRowsUpdated", 0),
        rows_removed=state.get("numRowsRemoved", 0),
        rows_late=state.get("numRowsDroppedByWatermark", 0),
    )


_ROCKSDB_TABLES = "rocksdbSstFileSize"
"""Spark's metric of the size of all tables of RocksDB; the provider that is backed by HDFS has none of the kind."""


def _time_ms(text: str) -> int:
    return int(1000 * datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp())
