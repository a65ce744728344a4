"""The operator's acts on a real ledger and real accounts, without Spark."""

import sys
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.parquet_target import SCHEMA, Target, rows, stage

import penstock
from penstock.commit.outcome import Delivered, StagedBatch
from penstock.core.faults import arm
from penstock.core.model import Batch, BatchId, Generation, OffsetRange, QueryId, SourceName, Staged
from penstock.errors import BatchGap, DependencyMissing, PublishFailed, Retryable
from penstock.run import operations
from penstock.run.assembly import DeliveryPlan, assemble, sinks_of
from penstock.run.continuation import Adoption, plan_adoption, require_continuation
from penstock.run.operations import adopt, coordinating, recover, sweep, verify
from penstock.run.runtime import Runtime, coordinator_of, opened_by_this_process, prepare
from penstock.run.status import status_of
from penstock.sink.parquet import ParquetSink

BATCH = Batch(
    query_id=QueryId("query"),
    batch_id=BatchId(0),
    offsets=(OffsetRange(source=SourceName("events"), start=None, end="3"),),
)


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    yield
    arm("")


def plan_of(target: Target) -> DeliveryPlan:
    lake = penstock.Parquet(accounts={"only": target.root()})
    return penstock.Delivery("flights", home=target.directory / "home", sinks={"lake": lake}).plan


def decide_and_fail_to_publish(plan: DeliveryPlan, *, garbage: int) -> None:
    """Of `garbage` + 1 attempts the last one is decided."""
    with closing(assemble(plan)) as runtime:
        (sink,) = runtime.sinks
        assert isinstance(sink, ParquetSink)
        coordinator = coordinator_of(runtime)
        sink.prepare(pipeline=plan.pipeline, schema=SCHEMA)
        coordinator.open(opened_by_this_process(runtime))
        told: list[tuple[Staged, ...]] = [stage(sink, rows(1, 2, 3)) for _ in range(garbage + 1)]
        arm("rename.move=error")
        with pytest.raises(PublishFailed):
            coordinator.deliver(BATCH, lambda generation: StagedBatch(pieces=told[-1], rows_in=3, schema=SCHEMA))
        arm("")


def test_sweeping_beside_a_decision_that_is_not_published_takes_nothing_of_it(tmp_path: Path) -> None:
    """Bugs 4 and 12: a clean-up deleted what was decided and only not visible yet."""
    target = Target(tmp_path)
    plan = plan_of(target)
    decide_and_fail_to_publish(plan, garbage=2)
    assert target.files() == []
    before = target.staged()
    assert len(before) == 3
    named = sweep(plan, dry_run=True)
    assert target.staged() == before
    assert sweep(plan, dry_run=False) == named
    assert len(target.staged()) == 1
    assert recover(plan).rolled_forward
    assert target.content() == Counter(str({"id": number, "place": "here", "day": None}) for number in (1, 2, 3))
    assert target.staged() == []
    assert verify(plan).ok
    assert not recover(plan).rolled_forward


def test_a_batch_without_rows_is_not_reported_by_every_start(tmp_path: Path) -> None:
    plan = plan_of(Target(tmp_path))
    with closing(assemble(plan)) as runtime:
        coordinator = coordinator_of(runtime)
        runtime.sinks[0].prepare(pipeline=plan.pipeline, schema=SCHEMA)
        coordinator.open(opened_by_this_process(runtime))
        coordinator.deliver(BATCH, lambda _: StagedBatch(pieces=(), rows_in=0, schema=SCHEMA))
    assert [recover(plan).rolled_forward for _ in range(2)] == [False, False]


def test_ctrl_c_ends_the_tries_of_a_recovery(tmp_path: Path) -> None:
    """Several sinks are published in threads, and the end of the process waits for these."""
    asked = threading.Event()

    def ask() -> None:
        asked.set()
        raise Retryable("The database does not answer.", remedy="Start it.")

    sinks = {"out": penstock.Console()}
    delivery = penstock.Delivery("flights", home=tmp_path, sinks=sinks, guarantee="at_least_once", retry_timeout="30s")
    with closing(assemble(delivery.plan)) as runtime, ThreadPoolExecutor(1) as threads:
        with suppress(KeyboardInterrupt), coordinating(runtime) as coordinator:
            tried = threads.submit(coordinator._retrying, ask)
            assert asked.wait(60)
            raise KeyboardInterrupt
        assert isinstance(tried.exception(10), Retryable)


class Driver:
    """A run that is alive, with Spark's log beside it: batch by batch planned, delivered and committed."""

    def __init__(self, plan: DeliveryPlan, root: Path) -> None:
        self.runtime, self.root = assemble(plan), root
        self.coordinator = coordinator_of(self.runtime)
        self.sink = self.runtime.sinks[0]
        self.sink.prepare(pipeline=plan.pipeline, schema=SCHEMA)
        self.coordinator.open(opened_by_this_process(self.runtime))
        self.write("metadata", '{"id":"query"}')

    def write(self, name: str, text: str) -> None:
        (self.root / name).parent.mkdir(parents=True, exist_ok=True)
        (self.root / name).write_text(text)

    def plan(self, batch_id: int) -> None:
        self.write(f"offsets/{batch_id}", f'v1\n{{}}\n{{"t":{{"0":{batch_id}}}}}')

    def deliver(self, batch_id: int) -> Delivered:
        sink: Any = self.sink
        number = BatchId(batch_id)
        batch = self.runtime.checkpoint.batch(number, self.runtime.source_names(number))

        def staged(generation: Generation) -> StagedBatch:
            pieces = stage(sink, rows(batch_id), batch_id=batch_id, generation=generation)
            return StagedBatch(pieces=pieces, rows_in=1, schema=SCHEMA)

        return self.coordinator.deliver(batch, staged)

    def go_on(self, *batches: int) -> None:
        for batch_id in batches:
            self.deliver(batch_id)
            self.write(f"commits/{batch_id}", "v1\n{}")
            self.plan(batch_id + 1)


def test_adopting_beside_a_run_that_goes_on_adopts_nothing_that_it_delivered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was planned before the fence is older than the ledger by then: a batch would be new once more."""
    target = Target(tmp_path)
    plan = plan_of(target)
    root = Path(plan.spark_checkpoint)
    driver = Driver(plan, root)
    driver.plan(0)
    driver.go_on(0)
    first = iter([True])

    def plan_late(*given: Any) -> Adoption:
        """The run goes on after the ledger was read, and before the checkpoint is."""
        if next(first, False):
            driver.go_on(1, 2)
        return plan_adoption(*given)

    def prepare_late(runtime: Runtime, *, schema: str | None) -> None:
        driver.deliver(3)
        prepare(runtime, schema=schema)

    monkeypatch.setattr(operations, "plan_adoption", plan_late)
    monkeypatch.setattr(operations, "prepare", prepare_late)
    assert not adopt(plan, reason="a test", yes=True).done
    assert Driver(plan, root).deliver(3).already
    assert target.content() == Counter(str({"id": number, "place": "here", "day": None}) for number in (0, 1, 2, 3))


def test_adopting_takes_the_sources_in_the_order_of_the_query_not_of_the_file(tmp_path: Path) -> None:
    """A batch that is decided and not committed continues the ledger; adopted, it would be delivered once more."""
    target = Target(tmp_path)
    of_file = replace(plan_of(target), sources=(SourceName("flights"), SourceName("airports")))
    of_query = replace(of_file, sources=(SourceName("airports"), SourceName("flights")))
    root = Path(of_file.spark_checkpoint)
    driver = Driver(of_query, root)
    driver.write("offsets/0", 'v1\n{}\n{"a":{"0":1}}\n{"f":{"0":7}}')
    driver.deliver(0)
    adoption = adopt(of_file, reason="a test", yes=True)
    assert not adoption.done, adoption.consequences
    assert Driver(of_query, root).deliver(0).already
    assert target.content() == Counter([str({"id": 0, "place": "here", "day": None})])


def test_the_checkpoint_of_a_query_that_reads_a_source_twice_can_be_adopted(tmp_path: Path) -> None:
    """As a union with itself does: Spark logs two offsets for it, and the pipeline file has one name."""
    plan = replace(plan_of(Target(tmp_path)), sources=(SourceName("events"),))
    driver = Driver(replace(plan, sources=2 * plan.sources), Path(plan.spark_checkpoint))
    driver.write("offsets/0", 'v1\n{}\n{"t":{"0":1}}\n{"t":{"0":1}}')
    driver.deliver(0)
    assert not adopt(plan, reason="", yes=False).needed
    driver.write("commits/0", "v1\n{}")
    driver.write("metadata", '{"id":"old"}')
    adoption = adopt(plan, reason="", yes=False)
    assert (adoption.needed, adoption.next_batch_id) == (True, 1)
    assert "batch 0 of query old: the checkpoint was deleted or replaced" in adoption.consequences[0]


def test_a_source_that_was_renamed_can_be_adopted(tmp_path: Path) -> None:
    plan = replace(plan_of(Target(tmp_path)), sources=(SourceName("events"),))
    driver = Driver(plan, Path(plan.spark_checkpoint))
    driver.plan(0)
    driver.go_on(0)
    assert not adopt(plan, reason="", yes=False).needed
    adoption = adopt(replace(plan, sources=(SourceName("arrivals"),)), reason="", yes=False)
    assert adoption.needed
    assert "Batch 1 starts at arrivals=" in adoption.consequences[0]


def test_after_a_new_checkpoint_was_adopted_nothing_calls_the_ledger_empty(tmp_path: Path) -> None:
    plan = plan_of(Target(tmp_path))
    root = Path(plan.spark_checkpoint)
    driver = Driver(plan, root)
    driver.plan(0)
    driver.go_on(0, 1)
    root.rename(tmp_path / "old")
    assert adopt(plan, reason="a test", yes=True).done
    assert status_of(plan).text == "Nothing was delivered since a new checkpoint was adopted."
    nothing = "There is no checkpoint, and the ledger expects a new one: there is nothing to adopt."
    assert adopt(plan, reason="", yes=False).consequences == (nothing,)
    (tmp_path / "old").rename(root)
    with closing(assemble(plan)) as runtime:
        tail = runtime.ledger.tail()
        assert tail is not None
        with pytest.raises(BatchGap, match=r"A new checkpoint was adopted, .* goes on with batch 2, expected batch 0\."):
            require_continuation(tail.summary, runtime.checkpoint)
    adoption = adopt(plan, reason="a test", yes=True)
    assert adoption.done
    assert "A new checkpoint was adopted, but Spark runs batch 2 of query query" in adoption.consequences[0]


def test_a_sink_whose_client_is_not_installed_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    for loaded in [name for name in sys.modules if name.startswith("penstock.sink.duckdb")]:
        monkeypatch.delitem(sys.modules, loaded)
    table = penstock.DuckDB(url=f"duckdb:///{tmp_path}/flights.db", table="flights")
    plan = penstock.Delivery("flights", home=tmp_path / "home", sinks={"warehouse": table}).plan
    with pytest.raises(DependencyMissing, match=r"Sink 'warehouse' needs .*duckdb.*, which .* pip install 'duckdb<"):
        sinks_of(plan)
