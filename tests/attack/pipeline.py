"""A pipeline as its driver runs it, without Spark: a home directory, a real ledger, the coordinator and a real sink."""

import copy
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
from tenacity import stop_after_attempt
from tests.unit.table_target import spark_schema

from penstock.commit.append import with_backoff
from penstock.commit.coordinator import Coordinator
from penstock.commit.outcome import StagedBatch
from penstock.commit.verification import LedgerDecisions, verify_sink
from penstock.core.model import (
    NEWEST_ROW_DIGEST,
    Attempt,
    Batch,
    BatchId,
    Generation,
    Guarantee,
    OffsetRange,
    QueryId,
    SourceName,
    new_nonce,
)
from penstock.core.row_hash import row_hashes
from penstock.errors import Failed, PenstockError
from penstock.ledger.open import open_ledger
from penstock.run.runtime import Runtime, opened_by_this_process, prepare
from penstock.spark.schema import arrow_schema
from penstock.testing.conformance import PIPELINE
from penstock.testing.conformance.bench import accounts_of, travelled

QUERY = QueryId("5f0c9f0e-0000-4000-8000-000000000001")
TWICE = with_backoff(stop_after_attempt(2), lambda _: None)

Rows = Sequence[tuple[Any, ...]]


class Killed(Failed):
    """What a driver that is killed between decision and publication would leave."""


class Pipeline:
    """`rig` makes the sink, and keeps the target; ledger and spool are in `home`. `columns`: of the rows, as Spark names types.

    `settings` are those of the sink. All may be changed between two runs. `placed`: how the URL of the ledger begins.
    """

    def __init__(self, rig: Any, home: Path, *, columns: Mapping[str, Any], placed: str = "", **settings: Any) -> None:
        self.rig, self.home, self.columns, self.settings = rig, home, dict(columns), settings
        self.ledger_place = f"{placed}{home / 'ledger'}"
        home.mkdir(exist_ok=True)

    @property
    def schema(self) -> str:
        return spark_schema(**self.columns)

    # --- runs

    def run(self, *batches: "pa.RecordBatch | Rows", is_dying: bool = False, again: int | None = None) -> None:
        """Start, deliver new batches, and end; one that `is_dying` is killed before it publishes its last decision.

        With `again`, Spark first hands over the batch of that number once more.
        """
        with self._started(schema=self.schema) as (sink, coordinator):
            if again is not None:
                assert coordinator.deliver(batch_of(again), _never).already
            for rows in batches[:-1] if is_dying else batches:
                self._deliver(sink, coordinator, rows)
            if is_dying:
                sink.publish = _killed
                with suppress(Killed):
                    self._deliver(sink, coordinator, batches[-1])

    @contextmanager
    def driver(self) -> "Iterator[Callable[[pa.RecordBatch | Rows], None]]":
        """One that has started, and delivers a batch when it is told to."""
        with self._started(schema=self.schema) as (sink, coordinator):
            yield partial(self._deliver, sink, coordinator)

    @contextmanager
    def staging(self) -> "Iterator[Callable[[pa.RecordBatch], object]]":
        """One that has started, and stages a batch when it is told to, which is never decided."""
        with self._started(schema=self.schema) as (sink, coordinator):
            yield lambda rows: self._staged(sink, coordinator, 0, rows, Generation(1))

    def recover(self) -> None:
        """As `penstock recover`."""
        with self._started(schema=None):
            pass

    def offer(self, rows: "pa.RecordBatch | Rows") -> PenstockError | None:
        """Run with one batch: None if it was delivered, else the refusal, which must come before the decision."""
        before, refusal = self.decided(), None
        try:
            self.run(rows)
        except PenstockError as found:
            refusal = found
        assert self.decided() == before + (refusal is None), f"refused after the decision: {refusal!r}"
        return refusal

    @contextmanager
    def _started(self, *, schema: str | None):
        sink, ledger = self.sink(), self.ledger()
        parts = Runtime(
            pipeline=PIPELINE,
            ledger=ledger,
            sinks=(sink,),
            checkpoint=SimpleNamespace(location="none"),
            sources=(),
            digest="0" * 16,
            demanded=Guarantee.EXACTLY_ONCE,
        )
        try:
            prepare(parts, schema=schema)
            coordinator = Coordinator(pipeline=PIPELINE, ledger=ledger, sinks=[sink], now_ms=lambda: 0, retrying=TWICE)
            coordinator.open(opened_by_this_process(parts))
            yield sink, coordinator
            if "publish" not in vars(sink):  # of one that was killed
                coordinator.sweep()
        finally:
            sink.close()
            ledger.close()

    def _deliver(self, sink: Any, coordinator: Coordinator, rows: "pa.RecordBatch | Rows") -> None:
        number = coordinator.summary.next_batch_id or 0
        coordinator.deliver(batch_of(number), partial(self._staged, sink, coordinator, number, self.batch(rows)))

    def _staged(self, sink: Any, coordinator: Coordinator, number: int, rows: "pa.RecordBatch", generation: Generation):
        attempt = Attempt(generation=generation, batch_id=BatchId(number), partition=0, task_attempt=0, nonce=new_nonce())
        writer = travelled(sink.stager()).open(attempt, rows.schema)
        if rows.num_rows:
            accounts = None if sink.route_sql is None else accounts_of(sink, rows.select(["id"]).to_pylist())
            writer.write(rows, hashes=row_hashes(rows, coordinator.summary.row_digest), accounts=accounts)
        return StagedBatch(pieces=tuple(writer.finish()), rows_in=rows.num_rows, schema=self.schema)

    # --- parts

    def sink(self) -> Any:
        """A new object, with the spool of this home."""
        rig = copy.copy(self.rig)
        rig.directory = self.home
        return rig.make(**self.settings)

    def ledger(self) -> Any:
        return open_ledger(self.ledger_place, pipeline=PIPELINE)

    def batch(self, rows: "pa.RecordBatch | Rows") -> "pa.RecordBatch":
        if isinstance(rows, pa.RecordBatch):
            return rows
        named = [dict(zip(self.columns, row, strict=True)) for row in rows]
        return pa.RecordBatch.from_pylist(named, schema=arrow_schema(self.schema))

    # --- looks

    def decided(self) -> int:
        """How many batches."""
        ledger = self.ledger()
        try:
            tail = ledger.tail()
            return 0 if tail is None else tail.summary.next_batch_id or 0
        finally:
            ledger.close()

    def verify(self) -> Any:
        """The report of `penstock verify`."""
        sink, ledger = self.sink(), self.ledger()
        try:
            tail = ledger.tail()
            sink.use_row_digest(NEWEST_ROW_DIGEST if tail is None else tail.summary.row_digest)
            return verify_sink(sink, LedgerDecisions(ledger, sink.name, tail=tail), sleep=lambda _: None)
        finally:
            sink.close()
            ledger.close()

    def content(self) -> "Counter[tuple[Any, ...]]":
        """What another client reads in these columns, as `tests.attack.reading` has it."""
        from tests.attack.reading import read

        return read(self.rig, self.columns)


def batch_of(number: int) -> Batch:
    offsets = OffsetRange(source=SourceName("rows"), start=str(number) if number else None, end=str(number + 1))
    return Batch(query_id=QUERY, batch_id=BatchId(number), offsets=(offsets,))


def _killed(publication: Any) -> Any:
    raise Killed(f"Killed before position {publication.position}.", remedy="Start again.")


def _never(_: Generation) -> StagedBatch:
    raise AssertionError("a batch that was decided is staged again")
