"""The staging pass of one task: every Arrow batch goes to the stage writers of all sinks, and one small row comes out.

The same object runs in Spark's Python workers (`mapInArrow`) and, for small batches, in the driver.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from penstock.carried import through_spark
from penstock.codec import encode_message
from penstock.errors import PenstockError, StageFailed
from penstock.faults import FaultPoint, carry, take_over
from penstock.model import Attempt, BatchId, Generation, SinkName, Staged, new_nonce
from penstock.protocols import SCHEMA_KEY, Stager, StageWriter, requesting, requests_since, requests_so_far

START = FaultPoint("stage.start", "A task begins to stage its share of a batch.")
REPORT = FaultPoint("stage.report", "Everything of a task is staged, and Spark is about to be told.")

MESSAGE = "message"


class TaskFailed(RuntimeError):
    """What Spark is told when a task failed. Its text carries the task's own error to the driver."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkShare:
    """One sink's part in the pass; `route` is the place of its route among the projected columns."""

    sink: SinkName
    stager: Stager
    route: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StagePass:
    """Picklable. `columns` and `schema` (Spark's JSON) are the rows' own; see Projection for what follows them."""

    generation: Generation
    batch_id: BatchId
    columns: tuple[str, ...]
    schema: str
    shares: tuple[SinkShare, ...]
    faults: Mapping[str, str] = field(default_factory=lambda: dict(carry()))

    def __call__(self, batches: "Iterable[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        """Called by Spark in each task; yields one row, or none for a task without rows."""
        from pyspark import TaskContext

        task = TaskContext.get()
        if task is None:
            raise AssertionError("a task without a context")
        take_over(self.faults)
        try:
            message = self.run(batches, partition=task.partitionId(), task_attempt=task.taskAttemptId())
        except PenstockError as error:
            raise TaskFailed(through_spark(error)) from None
        yield pa.RecordBatch.from_pydict({MESSAGE: [message.decode("ascii")]})

    def run(self, batches: "Iterable[pa.RecordBatch]", *, partition: int, task_attempt: int) -> bytes:
        """Stage `batches` as one attempt and return its message. After an error nothing is undone: sweeping is later."""
        attempt = Attempt(
            generation=self.generation,
            batch_id=self.batch_id,
            partition=partition,
            task_attempt=task_attempt,
            nonce=new_nonce(),
        )
        running, stagers = _Running(self, attempt), requesting(share.stager for share in self.shares)
        before = requests_so_far(stagers)
        try:
            with START.around():
                running.take_all(batches)
            pieces = running.finish()
            with REPORT.around():
                requests = requests_since(before, stagers)
                return encode_message(pieces, rows=running.rows, size_bytes=running.size_bytes, requests=requests)
        except PenstockError:
            running.abandon()
            raise
        except Exception as cause:
            running.abandon()
            raise _failed(cause) from cause
        except BaseException:  # killed by Spark, or the interpreter ends
            running.abandon()
            raise


class _Running:
    """One attempt of the pass."""

    def __init__(self, stage_pass: StagePass, attempt: Attempt) -> None:
        self._pass, self._attempt = stage_pass, attempt
        self._writers: list[tuple[StageWriter, int | None]] = []
        self._schema: pa.Schema | None = None
        self.rows, self.size_bytes = 0, 0

    def take_all(self, batches: "Iterable[pa.RecordBatch]") -> None:
        for batch in batches:
            if batch.num_rows:
                self._take(batch)

    def finish(self) -> "list[Staged]":
        return [piece for writer, _ in self._writers for piece in writer.finish()]

    def abandon(self) -> None:
        for writer, _ in self._writers:
            writer.abandon()

    def _take(self, batch: "pa.RecordBatch") -> None:
        schema = self._schema or self._open(batch.schema)
        width = len(self._pass.columns)
        rows = pa.RecordBatch.from_arrays(_as(schema, batch.columns[:width]), schema=schema)
        hashes = batch.column(width).view(pa.uint64())
        for writer, route in self._writers:
            writer.write(rows, hashes=hashes, accounts=None if route is None else batch.column(route))
        self.rows += batch.num_rows
        self.size_bytes += rows.nbytes

    def _open(self, found: "pa.Schema") -> "pa.Schema":
        fields = [_in_utc(found.field(place)).with_name(name) for place, name in enumerate(self._pass.columns)]
        self._schema = pa.schema(fields, metadata={SCHEMA_KEY: self._pass.schema.encode()})
        for share in self._pass.shares:
            self._writers.append((share.stager.open(self._attempt, self._schema), share.route))
        return self._schema


def _in_utc(column: "pa.Field") -> "pa.Field":
    """Instants are labelled in UTC, whatever the session's time zone: the label is no part of the content."""
    return column.with_type(pa.timestamp("us", tz="UTC")) if _is_instant(column.type) else column


def _is_instant(kind: "pa.DataType") -> bool:
    return bool(pa.types.is_timestamp(kind)) and kind.tz is not None


def _as(schema: "pa.Schema", columns: "Sequence[pa.Array]") -> "list[pa.Array]":
    return [
        column.cast(kind) if _is_instant(kind) and column.type != kind else column
        for column, kind in zip(columns, schema.types, strict=True)
    ]


def _failed(cause: Exception) -> StageFailed:
    told = str(cause).strip().split("\n", maxsplit=1)[0] or "no message"
    return StageFailed(
        f"Staging failed with {type(cause).__name__}: {told}",
        remedy="Nothing of the batch was decided. Mend the cause and start again.",
    )
