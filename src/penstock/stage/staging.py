"""The staging pass of one task: every Arrow batch goes to the stage writers of all sinks, and one small row comes out.

The same object runs in Spark's Python workers (`mapInArrow`) and, for small batches, in the driver.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from penstock.core.codec import encode_message
from penstock.core.deletes import schema_with_deletes, with_deletes
from penstock.core.faults import FaultPoint, export_faults, import_faults
from penstock.core.model import Attempt, BatchId, Generation, SinkName, Staged, new_nonce
from penstock.errors import PenstockError, StageFailed
from penstock.protocols import SCHEMA_KEY, Stager, StageWriter, requesting, requests_since, requests_so_far
from penstock.spark.error import SparkError, lacks_penstock, penstock_missing, read_spark_failure
from penstock.stage.aside import FindsRefusedRows, QuarantineShare, RefusedRows
from penstock.support.error_transport import errors_through_spark, from_task
from penstock.support.secret import scrub

START = FaultPoint("stage.start", "A task begins to stage its share of a batch.")
REPORT = FaultPoint("stage.report", "Everything of a task is staged, and Spark is about to be told.")

MESSAGE = "message"


@dataclass(frozen=True, slots=True, kw_only=True)
class RowForm:
    """Rows as some sinks take them: `columns` from position `first` on, then their hash. `schema` is Spark's JSON of them."""

    columns: tuple[str, ...]
    schema: str
    first: int = 0

    @property
    def width(self) -> int:
        """How many of the projected columns the form takes, its hash included."""
        return len(self.columns) + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkShare:
    """One sink's part in the pass: the index of its form, and the positions of its route and predicates among the columns.

    `where`: which rows it takes; `deletes`: which of them delete. `puts_aside`: rows that the sink cannot take go into the
    quarantine, and do not fail the batch.
    """

    sink: SinkName
    stager: Stager
    route: int | None
    form: int = 0
    where: int | None = None
    deletes: int | None = None
    puts_aside: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StagePass:
    """The function that Spark runs in each task. Picklable. `Projection` describes the columns that it gets."""

    generation: Generation
    batch_id: BatchId
    forms: tuple[RowForm, ...]
    shares: tuple[SinkShare, ...]
    quarantine: QuarantineShare | None = None
    faults: Mapping[str, str] = field(default_factory=lambda: dict(export_faults()))

    @property
    def stagers(self) -> Mapping[SinkName, Stager]:
        """The stagers of all sinks that the pass can stage rows for, the quarantine included."""
        given = {share.sink: share.stager for share in self.shares}
        return given if self.quarantine is None else {**given, self.quarantine.sink: self.quarantine.stager}

    def __call__(self, batches: "Iterable[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        """Stage the rows of one task and yield its message as one row. Called by Spark."""
        from pyspark import TaskContext

        task = TaskContext.get()
        if task is None:
            raise AssertionError("a task without a context")
        import_faults(self.faults)
        with errors_through_spark():
            message = self.run(batches, partition=task.partitionId(), task_attempt=task.taskAttemptId())
        yield pa.RecordBatch.from_pydict({MESSAGE: [message.decode("ascii")]})

    def run(self, batches: "Iterable[pa.RecordBatch]", *, partition: int, task_attempt: int) -> bytes:
        """Stage `batches` as one attempt and return its message. After an error nothing is undone: a later sweep collects it."""
        attempt = Attempt(
            generation=self.generation,
            batch_id=self.batch_id,
            partition=partition,
            task_attempt=task_attempt,
            nonce=new_nonce(),
        )
        running = _Running(self, attempt)
        stagers = requesting(self.stagers.values())
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
    """The open stage writers and the counts of one attempt."""

    def __init__(self, stage_pass: StagePass, attempt: Attempt) -> None:
        self._pass, self._attempt = stage_pass, attempt
        self._writers: list[tuple[StageWriter, SinkShare]] = []
        self._schemas: list[pa.Schema] = []
        self._refused = None if stage_pass.quarantine is None else RefusedRows(stage_pass.quarantine, attempt)
        self.rows, self.size_bytes = 0, 0

    def take_all(self, batches: "Iterable[pa.RecordBatch]") -> None:
        for batch in batches:
            if batch.num_rows:
                self._take(batch)

    def finish(self) -> "list[Staged]":
        pieces = [piece for writer, _ in self._writers for piece in writer.finish()]
        return pieces if self._refused is None else [*pieces, *self._refused.finish()]

    def abandon(self) -> None:
        for writer, _ in self._writers:
            writer.abandon()
        if self._refused is not None:
            self._refused.abandon()

    def _take(self, batch: "pa.RecordBatch") -> None:
        if not self._schemas:
            self._open(batch.schema)
        taken = [_taken(batch, form, schema) for form, schema in zip(self._pass.forms, self._schemas, strict=True)]
        for writer, share in self._writers:
            rows, hashes = taken[share.form]
            if share.deletes is not None:
                rows = with_deletes(rows, batch.column(share.deletes))
            accounts = None if share.route is None else batch.column(share.route)
            if share.where is not None:
                is_taken = batch.column(share.where)
                rows, hashes = rows.filter(is_taken), hashes.filter(is_taken)
                accounts = None if accounts is None else accounts.filter(is_taken)
            if share.puts_aside and self._refused is not None:
                rows, hashes, accounts = self._sifted(share, rows, hashes, accounts, self._refused)
            if rows.num_rows:
                writer.write(rows, hashes=hashes, accounts=accounts)
        self.rows += batch.num_rows
        self.size_bytes += sum(rows.nbytes for rows, _ in taken)

    def _sifted(
        self,
        share: SinkShare,
        rows: "pa.RecordBatch",
        hashes: "pa.UInt64Array",
        accounts: "pa.StringArray | None",
        refused: RefusedRows,
    ) -> "tuple[pa.RecordBatch, pa.UInt64Array, pa.StringArray | None]":
        """Put aside what the sink cannot take, and return the rest: each row is on one side (I2)."""
        assert isinstance(share.stager, FindsRefusedRows)
        found = share.stager.refused(rows, accounts)
        if not found:
            return rows, hashes, accounts
        columns = list(self._pass.forms[share.form].columns)  # without the column of rows that delete
        refused.take(share.sink, rows.take(pa.array(found, pa.int64())).select(columns), list(found.values()))
        kept = pa.array([place for place in range(rows.num_rows) if place not in found], pa.int64())
        return rows.take(kept), hashes.take(kept), None if accounts is None else accounts.take(kept)

    def _open(self, found: "pa.Schema") -> None:
        self._schemas = [_schema(found, form) for form in self._pass.forms]
        for share in self._pass.shares:
            schema = self._schemas[share.form]
            schema = schema if share.deletes is None else schema_with_deletes(schema)
            self._writers.append((share.stager.open(self._attempt, schema), share))


def _schema(found: "pa.Schema", form: RowForm) -> "pa.Schema":
    fields = [_in_utc(found.field(form.first + place)).with_name(name) for place, name in enumerate(form.columns)]
    return pa.schema(fields, metadata={SCHEMA_KEY: form.schema.encode()})


def _taken(batch: "pa.RecordBatch", form: RowForm, schema: "pa.Schema") -> "tuple[pa.RecordBatch, pa.UInt64Array]":
    last = form.first + len(form.columns)
    rows = pa.RecordBatch.from_arrays(_as(schema, batch.columns[form.first : last]), schema=schema)
    return rows, batch.column(last).view(pa.uint64())


def _in_utc(column: "pa.Field") -> "pa.Field":
    """Label an instant as UTC, whatever the session's time zone is: the label is not part of the content."""
    return column.with_type(pa.timestamp("us", tz="UTC")) if _is_instant(column.type) else column


def _is_instant(data_type: "pa.DataType") -> bool:
    return bool(pa.types.is_timestamp(data_type)) and data_type.tz is not None


def _as(schema: "pa.Schema", columns: "Sequence[pa.Array]") -> "list[pa.Array]":
    return [
        column.cast(data_type) if _is_instant(data_type) and column.type != data_type else column
        for column, data_type in zip(columns, schema.types, strict=True)
    ]


def _failed(cause: Exception) -> StageFailed:
    reason = scrub(str(cause)).strip().split("\n", maxsplit=1)[0] or "no message"
    return StageFailed(
        f"Staging failed with {type(cause).__name__}: {reason}",
        remedy="Nothing of the batch was decided. Mend the cause and start again.",
    )


def from_spark(cause: Exception) -> PenstockError:
    """Return the task's own error if `cause` is or carries one, else StageFailed with Spark's reason."""
    if isinstance(cause, PenstockError):
        return cause
    transported = from_task(str(cause))
    if transported is not None:
        return transported
    if lacks_penstock(str(cause)):
        return penstock_missing("Spark could not compute the batch", str(cause))
    spark_error = read_spark_failure(scrub(str(cause)))
    return StageFailed(
        f"Spark could not compute the batch: {spark_error.sentence}",
        remedy=f"{_advice(spark_error)} Nothing of the batch was decided.",
    )


def _advice(spark_error: SparkError) -> str:
    if spark_error.condition is not None and spark_error.condition.startswith("CANNOT_LOAD_STATE_STORE"):
        return (
            "`penstock checkpoint verify FILE` says which file of the state is damaged or missing. Restore the checkpoint from a "
            "copy, and start again; without a copy, `penstock checkpoint rebuild FILE` makes it again, or says why it cannot."
        )
    if spark_error.condition is not None and spark_error.condition.startswith("FAILED_READ_FILE"):
        return (
            "Put a good file of that name in its place, with the modification time of the bad one (touch -r BAD GOOD; "
            "mv GOOD BAD; in an object store the next start names the command), or correct the schema or the options of the "
            "source; then start again."
        )
    return "Mend the cause (in the transform, or in the data) and start again."
