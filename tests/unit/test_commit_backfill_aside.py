"""A backfill whose sink cannot take some rows: these are in the quarantine once, whatever is killed, whoever comes between."""

from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pytest
from tests.killed import KilledError, is_killed_by
from tests.unit.parquet_target import SCHEMA, rows, stage
from tests.unit.test_commit_backfill import World
from tests.unit.test_run_operations import Driver

from penstock.commit.publication import decision_in
from penstock.core import faults
from penstock.core.bad_record import NAME
from penstock.core.model import Decision, Position, Staged
from penstock.errors import LedgerMismatch
from penstock.run.assembly import DeliveryPlan, assemble, ledger_of
from penstock.run.operations import recover, sweep, verify
from penstock.run.reading import read_table
from penstock.run.runtime import Runtime, coordinator_of, opened_by_this_process, prepare
from penstock.sink.parquet import ParquetSink

pytestmark = pytest.mark.usefixtures("kills_raise")

ASIDE = 1000
"""What is added to a row that the later sink could not take: batches with an odd number have one."""


class AsideWorld(World):
    """A world whose later sink takes each row, and puts one more aside of every batch with an odd number."""

    @property
    def both(self) -> DeliveryPlan:
        return self.plan("lake", "later", NAME)

    @property
    def without_later(self) -> DeliveryPlan:
        return self.plan("lake", NAME)

    def stage(self, runtime: Runtime, batch_id: int, *, generation: int) -> tuple[Staged, ...]:
        pieces = super().stage(runtime, batch_id, generation=generation)
        quarantine: Any = runtime.sinks[2]
        return (
            (*pieces, *stage(quarantine, rows(ASIDE + batch_id), batch_id=batch_id, generation=generation))
            if batch_id % 2
            else pieces
        )

    def drive(self, batch_id: int) -> None:
        """Deliver a batch without the later sink."""
        driver = Driver(self.without_later, self.root / "home" / "checkpoint")
        with closing(driver.runtime):
            driver.go_on(batch_id)

    def require_exact(self, batches: int) -> None:
        assert self.rows("later") == Counter(range(batches))
        aside = Counter(ASIDE + batch for batch in range(1, batches, 2))
        assert self.rows(NAME) == aside
        found = verify(self.both)
        assert found.ok, found
        table = read_table(self.both, NAME, None, None, added=False, counted=False)
        assert Counter(table.arrow()["id"].to_pylist()) == aside
        assert not [*self.root.rglob("*.staged")]


def killed_and_finished(world: AsideWorld, fault: str, *, driven: bool) -> bool:
    """Return whether the fault fired; then the next call finishes, and everything is there once."""
    if not is_killed_by(fault, world.backfill):
        return False
    sweep(world.both, dry_run=False)
    assert verify(world.both).ok
    if driven:
        world.drive(3)  # the quarantine gets what it was to get before anything that comes later
        assert verify(world.both).ok
    world.backfill()
    world.require_exact(4 if driven else 3)
    return True


POINTS = ("ledger.sqlite_commit", "rename.move", "parquet.marker.place", "parquet.stage.seal")


@pytest.mark.parametrize("driven", [False, True])
def test_rows_that_the_sink_cannot_take_are_in_the_quarantine_once(tmp_path: Path, *, driven: bool) -> None:
    reached = {
        point
        for point in POINTS
        for occurrence in (1, 2, 3, 4)
        if killed_and_finished(AsideWorld(tmp_path / f"{point}-{occurrence}"), f"{point}=kill@{occurrence}", driven=driven)
    }
    assert reached == set(POINTS)


def test_a_start_without_the_quarantine_is_refused_while_it_lacks_such_rows(tmp_path: Path) -> None:
    world = AsideWorld(tmp_path)
    faults.arm("rename.move=kill@2")  # the first is that of the sink, for batch 0
    with pytest.raises(KilledError):
        world.backfill()
    faults.arm("")
    with closing(ledger_of(world.both)) as ledger:
        tail = ledger.tail()
        assert tail is not None
        assert tail.summary.replaying_at == tail.position
    with pytest.raises(LedgerMismatch, match="holds rows for sink 'quarantine'"):
        recover(world.plan("lake"))
    recover(world.without_later)
    world.backfill()
    world.require_exact(3)


def replay(world: AsideWorld, row: int) -> None:
    """Replay a row that all sinks but the later one take."""
    runtime = assemble(world.without_later)
    with closing(runtime):
        prepare(runtime, schema=SCHEMA)
        coordinator = coordinator_of(runtime)
        opened = opened_by_this_process(runtime)
        coordinator.open(opened)
        newest = runtime.ledger.read(coordinator.summary.decided_at or Position(0))
        assert newest is not None
        batch, sinks = decision_in(newest).batch, cast("tuple[ParquetSink, ...]", runtime.sinks)
        generation = coordinator.generation
        pieces = [piece for sink in sinks for piece in stage(sink, rows(row), batch_id=batch.batch_id, generation=generation)]
        decision = Decision(batch=batch, staged=tuple(pieces), rows_in=1, schema=SCHEMA)
        coordinator.replay(decision, records=1)
        coordinator.settle(opened)


def read(world: AsideWorld, sink: str) -> list[int]:
    table = read_table(world.without_later, sink, None, None, added=False, counted=False)
    return sorted(table.arrow()["id"].to_pylist())


def test_what_was_replayed_stays_in_tables_that_are_read_behind_a_backfill_of_another_sink(tmp_path: Path) -> None:
    """The receipts in the quarantine, too: without them the same records would be replayed once more."""
    world = AsideWorld(tmp_path)
    replay(world, 100)
    faults.arm("rename.move=kill@3")  # of batch 1 the sink has its row, and the quarantine does not
    with pytest.raises(KilledError):
        world.backfill()
    faults.arm("")
    assert (read(world, "lake"), read(world, NAME)) == ([0, 1, 2, 100], [100])
    recover(world.without_later)
    assert (read(world, "lake"), read(world, NAME)) == ([0, 1, 2, 100], [100, ASIDE + 1])
    world.backfill()
    assert (read(world, "lake"), read(world, NAME)) == ([0, 1, 2, 100], [100, ASIDE + 1])
    assert verify(world.both).ok
