"""Two ledgers of one pipeline name under one spool: neither may sweep what the other staged."""

import random
import shutil
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.conformance.test_spool_places import Kept
from tests.unit.table_target import spark_schema

import penstock
from penstock.commit.outcome import StagedBatch
from penstock.commit.publication import dead_staging
from penstock.core import faults
from penstock.core.model import (
    NEWEST_ROW_DIGEST,
    Attempt,
    Batch,
    BatchId,
    Generation,
    Nonce,
    OffsetRange,
    Position,
    Publication,
    Published,
    QueryId,
    SourceName,
    Staged,
    SweepCut,
    new_nonce,
)
from penstock.core.row_hash import row_hashes
from penstock.errors import LedgerMismatch, PublishFailed, Retryable
from penstock.ledger.log import LogLedger
from penstock.ledger.store import MemoryStore
from penstock.protocols import HasStaging, Signature
from penstock.run.assembly import DeliveryPlan, assemble
from penstock.run.ledger_match import require_own_staging
from penstock.run.operations import recover, sweep, verify
from penstock.run.runtime import Runtime, coordinator_of, opened_by_this_process, prepare
from penstock.sink.spool import Spool
from penstock.sink.spool.place import Place
from penstock.testing.entries import PIPELINE, chain

SCHEMA = spark_schema(id="long", noise="string")
BATCH = Batch(
    query_id=QueryId("query"),
    batch_id=BatchId(0),
    offsets=(OffsetRange(source=SourceName("events"), start=None, end="3"),),
)


@pytest.fixture(params=["directory", "s3"])
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """A spool, as the pipeline file says it."""
    if request.param == "directory":
        return str(tmp_path / "spool")
    kept = Kept("s3")
    return {"url": kept.place.url, "options": kept.place.options}


@pytest.fixture(autouse=True)
def _ledgers_are_proved_briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each start has writers race for its ledger: twenty times, which takes longer than the rest of it. Others test that."""
    monkeypatch.setattr("penstock.ledger.self_test.ROUNDS", 2)


@pytest.fixture
def plan_at(shared: Any, tmp_path: Path) -> Callable[..., DeliveryPlan]:
    """A pipeline with that spool, and ledger and table in a home of its own."""

    def made(home: str, *, spool: Any = shared) -> DeliveryPlan:
        (tmp_path / home).mkdir(exist_ok=True)
        table = penstock.SQLite(url=f"sqlite:///{tmp_path / home}/data.db", table="t")
        return penstock.Delivery("flights", home=tmp_path / home, spool=spool, sinks={"db": table}).plan

    return made


def decide_and_fail_to_publish(plan: DeliveryPlan) -> None:
    with closing(assemble(plan)) as runtime:
        prepare(runtime, schema=SCHEMA)
        coordinator = coordinator_of(runtime)
        coordinator.open(opened_by_this_process(runtime))

        def stage(generation: Generation) -> StagedBatch:
            return StagedBatch(pieces=stage_in(runtime, generation), rows_in=2, schema=SCHEMA)

        runtime.sinks[0].publish = fail  # type: ignore[method-assign]
        with pytest.raises(PublishFailed):
            coordinator.deliver(BATCH, stage)


def fail(_: Publication) -> Published:
    raise PublishFailed("The table is locked.", remedy="Wait.")


def test_a_second_ledger_is_refused_and_takes_nothing(plan_at: Callable[..., DeliveryPlan]) -> None:
    first, second = plan_at("one"), plan_at("two")
    decide_and_fail_to_publish(first)
    for _ in range(2):
        with pytest.raises(LedgerMismatch, match=r"in use by ledger \w{32}, but the ledger at .* is empty") as told:
            recover(second)
        assert "`spool:` of its own" in told.value.remedy
    assert recover(first).rolled_forward
    assert verify(first).ok
    assert not recover(first).rolled_forward


def test_another_ledger_is_refused_whatever_it_has_at_that_position(plan_at: Callable[..., DeliveryPlan], tmp_path: Path) -> None:
    """Also when it retains no entry there, and has reached a greater generation."""
    first, second = plan_at("one"), plan_at("two")
    recover(first)
    for _ in range(3):
        recover(plan_at("two", spool=tmp_path / "other"))
    for act in (recover, lambda plan: sweep(plan, dry_run=False)):
        with pytest.raises(LedgerMismatch, match=r"but the ledger at .* is \w{32}"):
            act(second)
    with closing(assemble(second)) as runtime:
        runtime.ledger.prune(below=Position(5))
    for act in (recover, lambda plan: sweep(plan, dry_run=False)):
        with pytest.raises(LedgerMismatch, match=r"but the ledger at .* is \w{32}"):
            act(second)


def test_an_older_copy_of_a_ledger_is_refused(plan_at: Callable[..., DeliveryPlan], tmp_path: Path) -> None:
    """It has the identity, but not the entries."""
    first = plan_at("one")
    recover(first)
    shutil.copytree(tmp_path / "one", tmp_path / "copy")
    recover(first)
    with pytest.raises(LedgerMismatch, match=r"but the ledger at .* ends at position 2"):
        recover(plan_at("copy"))
    for _ in range(2):
        recover(plan_at("copy", spool=tmp_path / "other"))
    with pytest.raises(LedgerMismatch, match=r"but the ledger at .* has entry \w{16} there"):
        recover(plan_at("copy"))


def test_of_two_ledgers_that_begin_at_once_neither_sweeps_what_the_other_one_staged(
    plan_at: Callable[..., DeliveryPlan],
) -> None:
    """Both have prepared before one has signed. Who claims the spool last sees both names, and takes its own away."""
    with closing(assemble(plan_at("one"))) as one, closing(assemble(plan_at("two"))) as two:
        coordinators = []
        for runtime in (one, two):
            prepare(runtime, schema=SCHEMA)
            coordinators.append(coordinator_of(runtime))
        for runtime, coordinator in zip((one, two), coordinators, strict=True):
            coordinator.open(opened_by_this_process(runtime))
        [piece] = stage_in(one, coordinators[0].generation)
        assert [*two.sinks[0].sweep(every_attempt(two), dry_run=False)] == []
        with pytest.raises(LedgerMismatch, match=r"which ledger \w{32} signed, but this is ledger \w{32}"):
            coordinators[1].deliver(BATCH, lambda _: pytest.fail("it staged"))
        assert len(one.sinks[0].signatures(pipeline=one.pipeline)) == 1  # type: ignore[attr-defined]
        assert [name.rpartition("/")[2] for name in one.sinks[0].sweep(every_attempt(one), dry_run=False)] == [piece.name]


def test_a_spool_that_could_not_be_signed_takes_no_batch(plan_at: Callable[..., DeliveryPlan]) -> None:
    """Else another ledger would find nobody's spool, and sweep what this one has decided. The next start signs it."""
    first, second = plan_at("one"), plan_at("two")
    faults.arm("spool.sign=error")
    try:
        with closing(assemble(first)) as runtime:
            prepare(runtime, schema=SCHEMA)
            coordinator = coordinator_of(runtime, stop_wanted=lambda: True)  # tries twice, not for a minute
            assert "cannot be read or written" in str(coordinator.open(opened_by_this_process(runtime)).warnings)
            faults.arm("")
            with pytest.raises(Retryable, match="has not signed"):
                coordinator.deliver(BATCH, lambda _: pytest.fail("it staged"))
    finally:
        faults.arm("")
    decide_and_fail_to_publish(first)
    with pytest.raises(LedgerMismatch):
        recover(second)
    assert recover(first).rolled_forward


def test_a_spool_is_signed_where_its_sweep_fails(plan_at: Callable[..., DeliveryPlan]) -> None:
    first, second = plan_at("one"), plan_at("two")
    with closing(assemble(first)) as runtime:
        prepare(runtime, schema=SCHEMA)
        stage_in(runtime, Generation(0))
    faults.arm("spool.sweep=error")
    try:
        decide_and_fail_to_publish(first)
    finally:
        faults.arm("")
    with pytest.raises(LedgerMismatch):
        recover(second)
    assert recover(first).rolled_forward


def test_the_spool_of_an_older_penstock_is_taken_over_once(plan_at: Callable[..., DeliveryPlan]) -> None:
    """It names an entry and no identity."""
    first, second = plan_at("one"), plan_at("two")
    recover(first)
    [signature] = signatures_of(first)
    older = signature.name.replace(f"-{signature.ledger_id}", "")
    with closing(assemble(first)) as runtime:
        place_of(runtime).identify(older)
    forget(first, signature.name)
    assert [one.ledger_id for one in signatures_of(first)] == [None]
    with pytest.raises(LedgerMismatch, match=r"in use by a ledger with entry \w{16} at position \d+, but"):
        recover(second)
    recover(first)
    assert [one.ledger_id for one in signatures_of(first)] == [signature.ledger_id]


def test_a_ledger_knows_its_spool_again_also_when_it_was_moved(plan_at: Callable[..., DeliveryPlan], tmp_path: Path) -> None:
    first = plan_at("one")
    decide_and_fail_to_publish(first)
    (tmp_path / "one").rename(tmp_path / "moved")
    moved = plan_at("moved")
    assert recover(moved).rolled_forward
    assert verify(moved).ok
    assert len(signatures_of(moved)) == 1


def test_whose_ledger_is_gone_goes_on_as_the_remedy_says(plan_at: Callable[..., DeliveryPlan]) -> None:
    first, second = plan_at("one"), plan_at("two")
    recover(first)
    [signature] = signatures_of(first)
    with pytest.raises(LedgerMismatch) as told:
        recover(second)
    assert f"remove {signature.place}/{signature.name}" in told.value.remedy
    forget(first, signature.name)
    recover(second)
    with pytest.raises(LedgerMismatch):
        recover(first)


def signatures_of(plan: DeliveryPlan) -> Sequence[Signature]:
    with closing(assemble(plan)) as runtime:
        return runtime.sinks[0].signatures(pipeline=plan.pipeline)  # type: ignore[attr-defined, no-any-return]


def place_of(runtime: Runtime) -> Place:
    spool: Spool = runtime.sinks[0]._spool  # type: ignore[attr-defined]
    return spool.root.place_of(runtime.pipeline, runtime.sinks[0].name)


def stage_in(runtime: Runtime, generation: Generation) -> tuple[Staged, ...]:
    """Rows that are too many to travel in the decision."""
    noise = [random.Random(number).randbytes(100_000).hex() for number in range(2)]
    rows = pa.record_batch({"id": [1, 2], "noise": noise})
    attempt = Attempt(generation=generation, batch_id=BatchId(0), partition=0, task_attempt=0, nonce=new_nonce())
    writer = runtime.sinks[0].stager().open(attempt, rows.schema)
    writer.write(rows, hashes=row_hashes(rows, NEWEST_ROW_DIGEST), accounts=None)
    pieces = tuple(writer.finish())
    assert pieces[0].inline is None
    return pieces


def every_attempt(runtime: Runtime) -> SweepCut:
    """Of a ledger whose generations are greater than those of all others."""
    tail = runtime.ledger.tail()
    assert tail is not None
    return replace(dead_staging(tail, None), generation=Generation(99))


def forget(plan: DeliveryPlan, name: str) -> None:
    with closing(assemble(plan)) as runtime:
        place = place_of(runtime)
        [found] = [spooled for spooled in place.spooled() if spooled.name == name]
        place.remove(found)


class Signed(HasStaging):
    """A sink that somebody signed."""

    name = "db"

    def __init__(self, **changes: Any) -> None:
        self.signature = replace(
            Signature(place="spool", name="x.id", generation=Generation(1), position=Position(2), nonce=Nonce("")), **changes
        )

    def signatures(self, *, pipeline: str) -> Sequence[Signature]:
        return [self.signature]


def test_an_entry_that_is_no_longer_retained_is_believed() -> None:
    ledger = LogLedger(MemoryStore(), pipeline=PIPELINE)
    entries = list(islice(chain(), 6))
    for entry in entries:
        ledger.append(entry)
    own = Signed(nonce=entries[1].nonce)
    require_own_staging(ledger, [own], pipeline=PIPELINE)  # type: ignore[list-item]
    with pytest.raises(LedgerMismatch):
        require_own_staging(ledger, [Signed(nonce=new_nonce())], pipeline=PIPELINE)  # type: ignore[list-item]
    ledger.prune(below=Position(4))
    require_own_staging(ledger, [own], pipeline=PIPELINE)  # type: ignore[list-item]
    for wrong in (Signed(generation=Generation(2)), Signed(position=Position(7)), Signed(position=Position(5))):
        with pytest.raises(LedgerMismatch):
            require_own_staging(ledger, [wrong], pipeline=PIPELINE)  # type: ignore[list-item]
