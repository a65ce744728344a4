"""A replay on a real ledger and real accounts, without Spark: killed at every step, and what the ledger knows of it."""

from collections import Counter
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
from tests.killed import KilledError, is_killed_by
from tests.unit.parquet_target import SCHEMA, plan_of, rows, stage
from tests.unit.test_run_operations import Driver

from penstock.cli.status import _published
from penstock.commit.publication import decision_in, replays_without
from penstock.commit.recent_rows import rows_since
from penstock.commit.rewind import decided_to
from penstock.core import faults
from penstock.core.codec import decode_entry, encode_entry
from penstock.core.model import BatchId, Decision, SinkName
from penstock.core.replay import Replayed
from penstock.errors import Fenced, LedgerMismatch, PublishFailed, Refused
from penstock.observe.condition import condition_of
from penstock.observe.history import history
from penstock.observe.look import Look
from penstock.run.assembly import DeliveryPlan, assemble, ledger_of
from penstock.run.operations import recover, sweep, verify
from penstock.run.reading import read_table
from penstock.run.runtime import Runtime, coordinator_of, now_ms, opened_by_this_process, prepare
from penstock.run.status import status_of

pytestmark = pytest.mark.usefixtures("kills_raise")

ASIDE = SinkName("aside")
FIRST = 100
"""The first of the replayed rows."""


class World:
    """A pipeline whose batch N holds row N. Rows from FIRST on are replayed, and marked by the same rows in a second sink."""

    def __init__(self, root: Path, *, batches: int = 2) -> None:
        self.root = root
        self.drive(0, batches)

    def plan(self, *sinks: str) -> DeliveryPlan:
        return plan_of(self.root, *sinks)

    @property
    def whole(self) -> DeliveryPlan:
        return self.plan("lake", "aside")

    def drive(self, first: int, last: int) -> None:
        """Deliver batches `first` up to `last`, which is left out, in a run of their own."""
        driver = Driver(self.whole, self.root / "home" / "checkpoint")
        driver.runtime.sinks[1].prepare(pipeline=driver.runtime.pipeline, schema=SCHEMA)
        if not first:
            driver.plan(0)
        with closing(driver.runtime):
            driver.go_on(*range(first, last))

    def rows(self, sink: str = "lake") -> "Counter[int]":
        root = self.root / sink
        found = ds.dataset(root, format="parquet").to_table() if any(root.rglob("*.parquet")) else None
        return Counter() if found is None else Counter(found["id"].to_pylist())

    def marked(self) -> set[int]:
        found = read_table(self.whole, "aside", None, None, added=False, counted=False)
        return set() if found.as_of is None or not found.files else set(found.arrow()["id"].to_pylist())

    def replay(self, *ids: int) -> bool:
        """Replay those rows that are not marked yet; return whether what an earlier call decided was published now."""
        runtime = assemble(self.whole)
        with closing(runtime):
            prepare(runtime, schema=SCHEMA)
            coordinator = coordinator_of(runtime)
            opened = opened_by_this_process(runtime)
            recovered = coordinator.open(opened)
            wanted = [each for each in ids if each not in self.marked()]
            if wanted:
                coordinator.replay(self.decision(runtime, wanted, generation=coordinator.generation), records=len(wanted))
            coordinator.settle(opened)
            coordinator.sweep()
            return any(not each.already for each in recovered.replay.values())

    def decision(self, runtime: Runtime, ids: list[int], *, generation: int) -> Decision:
        tail = runtime.ledger.tail()
        assert tail is not None
        newest = runtime.ledger.read(tail.summary.decided_at or tail.position)
        assert newest is not None
        batch = decision_in(newest).batch
        sinks: Any = runtime.sinks
        pieces = [piece for sink in sinks for piece in stage(sink, rows(*ids), batch_id=batch.batch_id, generation=generation)]
        return Decision(batch=batch, staged=tuple(pieces), rows_in=len(ids), schema=SCHEMA)

    def require_exact(self, *replayed: int, batches: int = 2) -> None:
        assert self.rows() == Counter([*range(batches), *replayed])
        assert self.rows("aside") == Counter(replayed)
        found = verify(self.whole)
        assert found.ok, found
        assert not [*self.root.rglob("*.staged")]


def test_a_replay_gives_rows_once_and_the_driver_goes_on_behind_it(tmp_path: Path) -> None:
    world = World(tmp_path)
    assert not world.replay(100, 101)
    world.require_exact(100, 101)
    assert not world.replay(100, 101)
    world.require_exact(100, 101)
    world.replay(100, 102)
    world.drive(2, 4)
    world.replay(103)
    world.require_exact(100, 101, 102, 103, batches=4)
    with closing(ledger_of(world.whole)) as ledger:
        found = list(history(ledger.newest_first()))
        assert [row.kind for row in found][:3] == ["opened", "replayed", "opened"]
        assert found[1].text == "1 record of the quarantine was replayed: 1 row"
        [*_, newest] = [entry for entry in ledger.newest_first() if isinstance(entry.body, Replayed)][::-1]
        assert decode_entry(encode_entry(newest)) == newest
        assert rows_since(ledger, ASIDE, 0) == 0
        assert rows_since(ledger, SinkName("lake"), 0) == 4


def test_a_table_is_read_with_what_was_replayed_and_as_of_batches_without_it(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.replay(100)
    for batch, expected in ((None, [0, 1, 100]), (1, [0, 1]), (0, [0])):
        found = read_table(world.whole, "lake", None, batch, added=False, counted=False)
        assert sorted(found.arrow()["id"].to_pylist()) == expected
    world.drive(2, 3)
    found = read_table(world.whole, "lake", None, None, added=False, counted=False)
    assert sorted(found.arrow()["id"].to_pylist()) == [0, 1, 2, 100]


def killed_and_finished(world: World, fault: str, *, by_driver: bool) -> bool:
    """Return whether the fault fired; then the next start finishes, and everything is there once."""
    if not is_killed_by(fault, lambda: world.replay(100, 101)):
        return False
    sweep(world.whole, dry_run=False)  # takes nothing that was decided
    assert verify(world.whole).ok
    if by_driver:
        world.drive(1, 2)
    world.replay(100, 101)
    world.require_exact(100, 101)
    return True


PREFIXES = ("ledger.sqlite", "parquet.marker", "parquet.publish", "parquet.prepare", "parquet.stage.seal", "rename.", "claim.")


@pytest.mark.parametrize("by_driver", [False, True])
def test_a_replay_that_is_killed_at_any_step_is_finished_once(tmp_path: Path, *, by_driver: bool) -> None:
    points = [point.name for point in faults.points() if point.name.startswith(PREFIXES)]
    reached = [
        point
        for point in points
        for occurrence in (1, 2)
        if killed_and_finished(
            World(tmp_path / f"{point}-{occurrence}", batches=2), f"{point}=kill@{occurrence}", by_driver=by_driver
        )
    ]
    assert {"ledger.sqlite_commit", "rename.move", "parquet.marker.place", "parquet.stage.seal"} <= set(reached)


@pytest.mark.parametrize("fault", ["rename.move=error@2", "rename.move=lost", "parquet.marker.place=lost"])
def test_what_a_failed_replay_decided_is_published_by_the_next_start(tmp_path: Path, fault: str) -> None:
    world = World(tmp_path)
    faults.arm(f"ledger.sqlite_commit=lost@2,{fault}")
    with pytest.raises(PublishFailed):
        world.replay(100)
    faults.arm("")
    assert verify(world.whole).ok
    with pytest.raises(LedgerMismatch, match="holds rows for sink 'aside', which the pipeline file no longer has"):
        recover(world.plan("lake"))
    recovered = recover(world.whole)
    assert set(recovered.replay) == {"lake", "aside"}
    recover(world.plan("lake"))  # now the sink may go
    assert not world.replay(100)
    world.require_exact(100)


def test_status_tells_of_a_replay_that_is_not_published_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path)
    assert status_of(world.whole).published
    faults.arm("rename.move=kill")
    with pytest.raises(KilledError):
        world.replay(100)
    faults.arm("")
    running = status_of(world.whole)
    assert (running.published, running.replaying) == (False, running.tail)
    assert "the driver publishes it" in f"{_published(running)}"
    monkeypatch.setattr("penstock.observe.driver._runs", lambda *_, **__: False)
    stopped = status_of(world.whole)
    assert f"{_published(stopped)}".startswith(f"NO: what was replayed at position {stopped.tail} is not in every sink yet;")
    look = Look(pipeline="flights", status=stopped)
    assert condition_of(look, now_ms=now_ms()).text.startswith("What was replayed at position")
    recover(world.whole)  # the remedy
    assert status_of(world.whole).published


def test_a_replay_that_a_newer_run_fenced_decides_nothing(tmp_path: Path) -> None:
    world = World(tmp_path)
    runtime = assemble(world.whole)
    with closing(runtime):
        prepare(runtime, schema=SCHEMA)
        coordinator = coordinator_of(runtime)
        coordinator.open(opened_by_this_process(runtime))
        decision = world.decision(runtime, [100], generation=coordinator.generation)
        world.replay(100)
        with pytest.raises(Fenced):
            coordinator.replay(decision, records=1)
    recover(world.whole)
    world.require_exact(100)


def test_a_driver_that_a_replay_fenced_decides_nothing_more(tmp_path: Path) -> None:
    world = World(tmp_path)
    driver = Driver(world.whole, tmp_path / "home" / "checkpoint")
    with closing(driver.runtime):
        world.replay(100)
        with pytest.raises(Fenced):
            driver.go_on(2)
    world.drive(2, 3)
    world.require_exact(100, batches=3)


def test_a_rewind_does_not_go_behind_a_replay(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.replay(100)
    with closing(ledger_of(world.whole)) as ledger, pytest.raises(Refused, match="were replayed at position"):
        decided_to(ledger, BatchId(1))
    world.drive(2, 4)
    with closing(ledger_of(world.whole)) as ledger:
        assert decision_in(decided_to(ledger, BatchId(2))).batch.batch_id == 2
        with pytest.raises(Refused, match="were replayed at position"):
            decided_to(ledger, BatchId(1))


def test_a_replay_whose_receipts_are_gone_is_known_by_the_ledger(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.replay(100)
    world.drive(2, 3)
    world.replay(101)
    with closing(ledger_of(world.whole)) as ledger:
        tail = ledger.tail()
        assert tail is not None
        replays = [entry for entry in ledger.newest_first() if isinstance(entry.body, Replayed)]
        names = {piece.name for entry in replays for piece in decision_in(entry).of_sink(ASIDE)}
        gone = decision_in(replays[1]).of_sink(ASIDE)[0].name
        assert list(replays_without(ledger, tail.summary, sink=ASIDE, present=names)) == []
        assert list(replays_without(ledger, tail.summary, sink=ASIDE, present=names - {gone})) == [replays[1]]
        waiting = replace(tail.summary, replaying_at=replays[0].position)
        assert list(replays_without(ledger, waiting, sink=ASIDE, present=set())) == [replays[1]], "the newest is to come"
