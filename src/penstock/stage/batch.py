"""Staging of one micro-batch into all sinks, by the path that suits its size."""

import json
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.core.bad_record import SCHEMA
from penstock.core.codec import TaskMessage, decode_message
from penstock.core.dropped_rows import DroppedRows
from penstock.core.faults import FaultPoint
from penstock.core.model import BatchId, Generation, RowDigest, SinkName, Staged
from penstock.core.unrouted import without_unrouted
from penstock.protocols import ALL_ROWS, Sink, Taken
from penstock.spark.session_settings import applied
from penstock.stage.combining import combined
from penstock.stage.opening import computed_once, staged_with_tables
from penstock.stage.path import DRIVER_PARTITIONS, BatchSize, StagePath, driver_rows_per_partition, settings_for
from penstock.stage.projection import TOO_MANY_ROWS, Projection, deletes_of, route_of
from penstock.stage.quarantine import BadRecords, QuarantineMember
from penstock.stage.rules import NO_VIOLATIONS, Violations
from penstock.stage.staging import MESSAGE, SinkShare, StagePass, from_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

COLLECT = FaultPoint("stage.collect", "The staging pass runs as a Spark job and its messages reach the driver.")

_RESULT_TOO_LARGE = ("spark.driver.maxResultSize", TOO_MANY_ROWS)


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedRows:
    """What the tasks staged whose results Spark returned. Everything else that was written is garbage, not data.

    `requests` counts the requests of the same tasks; None where no place bills requests. `dropped`: rows that sinks left out.
    """

    pieces: tuple[Staged, ...]
    rows_in: int
    size: BatchSize
    path: StagePath
    requests: int | None
    dropped: DroppedRows = field(default_factory=dict)

    def rows_of(self, sink: SinkName) -> int:
        """Return how many rows were staged for one sink."""
        return sum(piece.totals.rows for piece in self.pieces if piece.sink == sink)


def stage_batch(
    rows: "DataFrame",
    *,
    sinks: Sequence[Sink],
    generation: Generation,
    batch_id: BatchId,
    row_digest: RowDigest,
    previous: BatchSize | None = None,
    small_input: bool = False,
    quarantine: QuarantineMember | None = None,
    bad: BadRecords | None = None,
    taken: Mapping[SinkName, Taken] = ALL_ROWS,
    violations: Violations = NO_VIOLATIONS,
    has_state: bool = False,
) -> StagedRows:
    """Run `rows` once through the stage writers of all `sinks`, and the records that cannot be decoded through the quarantine's.

    `taken` says which rows a sink takes, and which columns of them; a sink that is not in it takes all.
    `previous` is the size of the batch before and chooses the path. It is None if unknown, or if the query keeps state, which may
    be computed only once. A batch that turns out too large for the driver is staged by tasks instead, from the start. With
    `small_input` (see `is_small`), rows are not counted on the way to the driver, which saves Spark's planning of a projection.
    `has_state`: the rows are computed once, though tables that they name for the first time have them staged again.
    `bad` is what cannot be decoded, and `violations` what rules found. Raises Usage for columns that cannot be staged, a task's
    own error with its message and remedy, Retryable for a record that can be decoded since, else StageFailed.
    """
    projection = Projection.of(rows.schema, sinks, row_digest, taken=taken)
    found = None if quarantine is None else quarantine.put_aside(bad, violations)

    def stage(kept: "DataFrame") -> StagedRows:
        stage_pass = _pass(
            projection, sinks, taken=taken, generation=generation, batch_id=batch_id, row_digest=row_digest, quarantine=quarantine
        )
        return _stage(kept, projection, stage_pass, previous=previous, small_input=small_input)

    aside = (
        None
        if found is None or quarantine is None
        else stage_aside(found, quarantine.sink, generation=generation, batch_id=batch_id, row_digest=row_digest)
    )
    with computed_once(rows, sinks) if has_state else nullcontext(rows) as kept:
        staged = staged_with_tables(lambda: stage(kept), sinks)
    if quarantine is None:
        return staged
    others = 0 if found is None else found.num_rows
    quarantine.require_few_refused(staged.pieces, rows=staged.rows_in, others=others)
    if aside is None:
        return staged
    quarantine.require_still_bad(bad)
    requests = [part.requests for part in (staged, aside) if part.requests is not None]
    return replace(staged, pieces=(*staged.pieces, *aside.pieces), requests=sum(requests) if requests else None)


def _stage(
    rows: "DataFrame", projection: Projection, stage_pass: StagePass, *, previous: BatchSize | None, small_input: bool
) -> StagedRows:
    if previous is not None and previous.fits_driver:
        whole = small_input and previous.measured and projection.is_plain
        fetched = _fetch_whole(rows, projection) if whole else _fetch(rows, projection, driver_rows_per_partition(previous))
        if fetched is not None:
            message = stage_pass.run(fetched, partition=0, task_attempt=0)
            return _staged([decode_message(message)], StagePath.DRIVER)
    with applied(rows.sparkSession, settings_for(rows.schema, previous)):
        staged = _staged(_run_tasks(rows, projection, stage_pass), StagePath.DISTRIBUTED)
    return replace(staged, pieces=combined(staged.pieces, stage_pass))


def stage_aside(found: "pa.Table", sink: Sink, *, generation: Generation, batch_id: BatchId, row_digest: RowDigest) -> StagedRows:
    """Stage the rows for the quarantine, which is `sink`; they are in the driver already."""
    from pyspark.sql.types import StructType

    projection = Projection.of(StructType.fromJson(json.loads(SCHEMA)), [sink], row_digest)
    stage_pass = _pass(projection, [sink], generation=generation, batch_id=batch_id, row_digest=row_digest)
    message = stage_pass.run(list(projection.of_arrow(found)), partition=0, task_attempt=0)
    return _staged([decode_message(message)], StagePath.DRIVER)


def _pass(
    projection: Projection,
    sinks: Sequence[Sink],
    *,
    generation: Generation,
    batch_id: BatchId,
    row_digest: RowDigest,
    taken: Mapping[SinkName, Taken] = ALL_ROWS,
    quarantine: QuarantineMember | None = None,
) -> StagePass:
    puts_aside = frozenset() if quarantine is None else quarantine.puts_aside
    return StagePass(
        quarantine=quarantine.share(row_digest) if quarantine is not None and puts_aside else None,
        generation=generation,
        batch_id=batch_id,
        forms=projection.forms,
        shares=tuple(
            SinkShare(
                sink=sink.name,
                stager=sink.stager(),
                route=projection.route_index(route_of(sink, taken.get(sink.name))),
                form=form,
                where=projection.predicate_index(taken[sink.name].where) if sink.name in taken else None,
                deletes=projection.predicate_index(deletes_of(taken.get(sink.name))),
                puts_aside=sink.name in puts_aside,
            )
            for sink, form in zip(sinks, projection.form_of, strict=True)
        ),
    )


def _run_tasks(rows: "DataFrame", projection: Projection, stage_pass: StagePass) -> list[TaskMessage]:
    try:
        with COLLECT.around():
            messages = projection.of_rows(rows).mapInArrow(stage_pass, f"{MESSAGE} string").collect()
    except Exception as cause:
        raise from_spark(cause) from cause
    return [decode_message(row[MESSAGE].encode()) for row in messages]


def _fetch(rows: "DataFrame", projection: Projection, at_most: int) -> "Sequence[pa.RecordBatch] | None":
    """Return the projected rows, None if they are too many for the driver or Spark cannot fetch such columns."""
    fetched = _to_arrow(projection.of_rows(rows.coalesce(DRIVER_PARTITIONS), at_most=at_most))
    return None if fetched is None else fetched.to_batches()


def _fetch_whole(rows: "DataFrame", projection: Projection) -> "Sequence[pa.RecordBatch] | None":
    """Return what `_fetch` returns, with the projection computed here instead of by Spark."""
    fetched = _to_arrow(rows)
    try:
        return None if fetched is None else list(projection.of_arrow(fetched))
    except (TypeError, pa.ArrowException):
        return None


def _to_arrow(rows: "DataFrame") -> "pa.Table | None":
    try:
        return rows.toArrow()
    except pa.ArrowException:
        return None  # Spark's own cast of nested columns fails on nulls inside of nulls; the tasks do without it
    except Exception as cause:
        if any(sign in str(cause) for sign in _RESULT_TOO_LARGE):
            return None
        raise from_spark(cause) from cause


def _staged(messages: Sequence[TaskMessage], path: StagePath) -> StagedRows:
    size = BatchSize(
        rows=sum(message.rows for message in messages),
        size_bytes=sum(message.size_bytes for message in messages),
        row_bytes=max((message.size_bytes // message.rows for message in messages if message.rows), default=0),
    )
    pieces, dropped = without_unrouted(piece for message in messages for piece in message.pieces)
    requests = _requests_of(messages)
    return StagedRows(pieces=pieces, rows_in=size.rows, size=size, path=path, requests=requests, dropped=dropped)


def _requests_of(messages: Sequence[TaskMessage]) -> int | None:
    counted = [message.requests for message in messages if message.requests is not None]
    return sum(counted) if counted and len(counted) == len(messages) else None
