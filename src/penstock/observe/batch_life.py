"""The life of a batch: what the ledger says of it, with the steps that its driver and Spark measured."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from penstock.core.model import BatchId, SinkName
from penstock.observe.batch_record import DeliveryRecord, SparkRecord, records_of
from penstock.observe.history import HistoryRow


class StepKind(str, Enum):
    """The steps of a batch in their order; the value says in a word what was done."""

    FETCH = "fetch offsets"
    OFFSET_LOG = "write offset log"
    PLAN = "plan"
    STAGE = "stage"
    WAIT = "wait or other"
    DECIDE = "decide"
    PUBLISH = "publish"
    COMMIT_LOG = "write commit log"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step. `after_ms`: how long after the begin of the batch it began. `sink`: the one that was published to.

    WAIT is the rest of the time that the delivery took: with `publish_behind` above all until the batch before was published.
    """

    kind: StepKind
    after_ms: int
    duration_ms: int
    sink: SinkName | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLife:
    """One entry of the ledger with what was measured of it. `delivery` and `spark` are None where nobody noted anything.

    `replays`: how often Spark ran the batch again, and nothing was delivered twice.
    """

    entry: HistoryRow
    delivery: DeliveryRecord | None = None
    spark: SparkRecord | None = None
    replays: int = 0

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps that were measured, in their order. Publications into several sinks begin together."""
        entry = self.entry
        return tuple(steps_of(self.delivery, self.spark, stage_ms=entry.stage_ms or 0, publish_ms=entry.publish_ms))

    @property
    def duration_ms(self) -> int:
        """The time from the first measured step to the end of the last one."""
        return max((step.after_ms + step.duration_ms for step in self.steps), default=0)

    @property
    def publish_ms(self) -> int | None:
        """The time of the publications; None where nobody measured it. The ledger tells it with the next decision only."""
        return self.entry.publish_ms if self.delivery is None else self.delivery.publish_ms

    @property
    def rows_read(self) -> int | None:
        """The records that the offsets of the sources say; None where nobody counted them."""
        return None if self.delivery is None else self.delivery.rows_read

    @property
    def rows_per_s(self) -> float | None:
        """Rows per second of staging, decision and publication, as `run` tells them; None where no time is known.

        Spark's own steps and waiting are not in it: they are in `duration_ms`.
        """
        decide_ms = 0 if self.delivery is None else self.delivery.decide_ms
        spent_ms = (self.entry.stage_ms or 0) + decide_ms + (self.publish_ms or 0)
        return 1000.0 * self.entry.rows_out / spent_ms if spent_ms else None

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a person should look at, though the batch was delivered."""
        return () if self.delivery is None else tuple(self.delivery.warnings)


def lives_of(rows: Sequence[HistoryRow], *, home: str) -> Sequence[BatchLife]:
    """Return the lives of ledger entries, by what their driver noted in `home`; of other kinds of entries the entry alone."""
    noted = _Noted(home, rows)
    return [noted.life_of(row) for row in rows]


def newest_batch(newest_first: Sequence[BatchLife]) -> BatchLife | None:
    """Return the newest batch that was measured to its end, else the newest one; None without any.

    Spark tells what it measured a moment after the sinks: until then the batch before it is the newest that is known whole.
    """
    batches = [life for life in newest_first if life.entry.kind == "decided"]
    return next((life for life in batches if life.delivery is not None and life.spark is not None), next(iter(batches), None))


class _Noted:
    """What was noted of some entries' batches. A batch number can come again in a later generation, after an adoption."""

    def __init__(self, home: str, rows: Sequence[HistoryRow]) -> None:
        self._deliveries: dict[tuple[int, BatchId], DeliveryRecord] = {}
        self._spark: dict[tuple[int, BatchId], SparkRecord] = {}
        self._replays: dict[BatchId, list[int]] = {}
        for record in records_of(home, {row.batch_id for row in rows if row.batch_id is not None}):
            key = (record.generation, record.batch_id)
            if isinstance(record, SparkRecord):
                self._spark[key] = record
            elif record.already:
                self._replays.setdefault(record.batch_id, []).append(record.generation)
            elif not record.recovered:
                self._deliveries[key] = record

    def life_of(self, row: HistoryRow) -> BatchLife:
        if row.batch_id is None:
            return BatchLife(entry=row)
        key = (row.generation, row.batch_id)
        replays = sum(generation >= row.generation for generation in self._replays.get(row.batch_id, ()))
        return BatchLife(entry=row, delivery=self._deliveries.get(key), spark=self._spark.get(key), replays=replays)


def steps_of(
    delivery: DeliveryRecord | None, spark: SparkRecord | None, *, stage_ms: int, publish_ms: int | None = None
) -> Iterator[Step]:
    """Yield the steps one after another; those that nobody measured, or that took no time worth a millisecond, are left out.

    `publish_ms`: of a batch of which nobody noted the delivery.
    """
    after_ms = 0
    for kind, duration_ms in _in_turn(delivery, spark, stage_ms=stage_ms, publish_ms=publish_ms or 0).items():
        if kind is StepKind.PUBLISH:
            yield from _publications(delivery, after_ms=after_ms, duration_ms=duration_ms)
        elif duration_ms:
            yield Step(kind=kind, after_ms=after_ms, duration_ms=duration_ms)
        after_ms += duration_ms


def _in_turn(
    delivery: DeliveryRecord | None, spark: SparkRecord | None, *, stage_ms: int, publish_ms: int
) -> Mapping[StepKind, int]:
    """Return the duration of each step, in their order; 0 for one that nobody measured."""
    decide_ms = 0 if delivery is None else delivery.decide_ms
    publish_ms = publish_ms if delivery is None else delivery.publish_ms
    before = {} if spark is None else _before(spark)
    wait_ms = 0 if spark is None or delivery is None else max(0, spark.execute_ms - stage_ms - decide_ms - publish_ms)
    own = {StepKind.STAGE: stage_ms, StepKind.WAIT: wait_ms, StepKind.DECIDE: decide_ms, StepKind.PUBLISH: publish_ms}
    return {**before, **own, StepKind.COMMIT_LOG: 0 if spark is None else spark.commit_log_ms}


def _before(spark: SparkRecord) -> Mapping[StepKind, int]:
    return {StepKind.FETCH: spark.fetch_ms, StepKind.OFFSET_LOG: spark.offset_log_ms, StepKind.PLAN: spark.plan_ms}


def _publications(delivery: DeliveryRecord | None, *, after_ms: int, duration_ms: int) -> Iterator[Step]:
    """Yield the publication into each sink, or one for all where that was not measured."""
    by_sink = {} if delivery is None else delivery.sink_ms
    if by_sink:
        for sink, sink_ms in by_sink.items():
            yield Step(kind=StepKind.PUBLISH, after_ms=after_ms, duration_ms=sink_ms, sink=sink)
    elif duration_ms:
        yield Step(kind=StepKind.PUBLISH, after_ms=after_ms, duration_ms=duration_ms)
