"""The operator's acts on a real ledger and real accounts, without Spark."""

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.unit.parquet_target import SCHEMA, Target, rows, stage

import penstock
from penstock.commit.outcome import StagedBatch
from penstock.core.faults import arm
from penstock.core.model import Batch, BatchId, OffsetRange, QueryId, SourceName, Staged
from penstock.errors import DependencyMissing, PublishFailed
from penstock.run.assembly import DeliveryPlan, assemble, sinks_of
from penstock.run.operations import recover, sweep, verify
from penstock.run.runtime import coordinator_of, opened_by_this_process
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


def test_a_sink_whose_client_is_not_installed_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    for loaded in [name for name in sys.modules if name.startswith("penstock.sink.duckdb")]:
        monkeypatch.delitem(sys.modules, loaded)
    table = penstock.DuckDB(url=f"duckdb:///{tmp_path}/flights.db", table="flights")
    plan = penstock.Delivery("flights", home=tmp_path / "home", sinks={"warehouse": table}).plan
    with pytest.raises(DependencyMissing, match=r"Sink 'warehouse' needs .*duckdb.*, which .* pip install 'penstock\[duckdb\]'"):
        sinks_of(plan)
