"""A driver and a backfill beside it, on a real ledger and real accounts, without Spark; and both in any order, killed."""

import random
import shutil
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
from tests.killed import KilledError
from tests.unit.parquet_target import SCHEMA, plan_of, rows, stage

from penstock.commit.backfill import lacking_batches
from penstock.commit.beside import BesideCoordinator, GivenBeside, give_beside, is_apart_or_absent
from penstock.commit.outcome import StagedBatch
from penstock.commit.publication import decision_in, sinks_apart
from penstock.core import faults
from penstock.core.backfill import BackfillOpened
from penstock.core.model import BatchId, Decision, Entry, Generation, SinkName, Staged, new_nonce
from penstock.errors import Fenced, Retryable
from penstock.observe.history import history
from penstock.protocols import Sink
from penstock.run.assembly import DeliveryPlan, assemble, ledger_of
from penstock.run.open_delivery import OpenDelivery
from penstock.run.operations import recover, verify
from penstock.run.runtime import coordinator_of, prepare

LATER = SinkName("later")
STEPS = ("ledger.sqlite_commit", "rename.move", "parquet.marker.place", "parquet.stage.seal")
PREFIXES = ("ledger.sqlite", "parquet.marker", "parquet.publish", "parquet.prepare", "parquet.stage.seal", "rename.", "claim.")


def points() -> list[str]:
    return [point.name for point in faults.points() if point.name.startswith(PREFIXES)]


def nothing() -> None:
    """Do nothing."""


class Driver:
    """A run that is alive, with Spark's log beside it. `meanwhile` is done between the staging of a batch and its decision."""

    def __init__(self, world: "World", plan: DeliveryPlan) -> None:
        self.world = world
        self.runtime = assemble(plan)
        self.opened = OpenDelivery(self.runtime)
        self.staged = 0
        try:
            self.opened.open(schema=SCHEMA)
        except BaseException:
            self.opened.release()
            raise

    def go_on(self, *, meanwhile: Callable[[], object] = nothing) -> None:
        """Deliver the next batch, which Spark planned before, and plan the one after it."""
        number = BatchId(self.world.batches)
        self.world.plan_batch(number)
        batch = self.runtime.checkpoint.batch(number, self.runtime.source_names(number))
        before = meanwhile

        def staged(generation: Generation) -> StagedBatch:
            nonlocal before
            without = sinks_apart(self.opened.coordinator.summary)
            sinks = [sink for sink in self.runtime.sinks if sink.name not in without]
            pieces = [piece for sink in sinks for piece in staged_in(sink, number, generation)]
            self.staged += 1
            before()
            before = nothing
            return StagedBatch(pieces=tuple(pieces), rows_in=1, schema=SCHEMA)

        self.opened.coordinator.deliver(batch, staged)
        self.world.write(f"commits/{number}", "v1\n{}")
        self.world.batches += 1

    def end(self) -> None:
        self.opened.release()


def staged_in(sink: Sink, number: BatchId, generation: Generation) -> list[Staged]:
    chosen: Any = sink
    return stage(chosen, rows(number), batch_id=number, generation=generation)


class World:
    """A pipeline whose batch N holds row N. Its driver has one sink, or two."""

    def __init__(self, root: Path) -> None:
        self.root, self.batches = root, 0
        self.write("metadata", '{"id":"5f0c9f0e-0000-4000-8000-000000000001"}')

    def copied(self, root: Path) -> "World":
        shutil.copytree(self.root, root)
        made = World(root)
        made.batches = self.batches
        return made

    def write(self, name: str, text: str) -> None:
        path = self.root / "home" / "checkpoint" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def plan_batch(self, number: int) -> None:
        self.write(f"offsets/{number}", f'v1\n{{}}\n{{"t":{{"0":{number}}}}}')

    def plan(self, *sinks: str) -> DeliveryPlan:
        return plan_of(self.root, *sinks)

    @property
    def both(self) -> DeliveryPlan:
        return self.plan("lake", "later")

    def driver(self, *sinks: str, batches: int = 0) -> Driver:
        made = Driver(self, self.plan(*sinks))
        for _ in range(batches):
            made.go_on()
        return made

    def backfill(self, each: Callable[[int], object] = lambda _: None, *, from_batch: int | None = None) -> GivenBeside:
        """Give the later sink what it lacks. `each` is called with a batch's number when that is staged, before it is decided."""
        runtime = assemble(self.both)
        with closing(runtime):
            sink = runtime.sinks[1]
            if not is_apart_or_absent(runtime.ledger, LATER):
                assert not lacking_batches(runtime.ledger, LATER, from_batch=None).entries
                return GivenBeside(recovered=None, batches=(), joined=True)
            coordinator = self.begun(runtime, from_batch=from_batch)

            def staged(entry: Entry) -> Decision:
                before = decision_in(entry)
                pieces = staged_in(sink, before.batch.batch_id, coordinator.generation)
                each(before.batch.batch_id)
                return Decision(batch=before.batch, staged=tuple(pieces), rows_in=1, schema=SCHEMA)

            return give_beside(coordinator, sink, runtime.ledger, stage=staged)

    def begun(self, runtime: Any, *, from_batch: int | None = None) -> BesideCoordinator:
        alone = replace(runtime, sinks=(runtime.sinks[1],))
        prepare(alone, schema=SCHEMA, apart=LATER)
        coordinator = coordinator_of(alone, of=BesideCoordinator)
        assert isinstance(coordinator, BesideCoordinator)
        tail = runtime.ledger.tail()
        chosen = None if from_batch is None else BatchId(from_batch)
        lacking = lacking_batches(runtime.ledger, LATER, from_batch=chosen)
        opened = BackfillOpened(sink=LATER, writer=new_nonce(), owner="a test")
        coordinator.open_beside(opened, generation=tail.generation, first=lacking.begins)
        return coordinator

    def rows(self, sink: str) -> "Counter[int]":
        root = self.root / sink
        return Counter(ds.dataset(root, format="parquet").to_table()["id"].to_pylist() if root.exists() else ())

    def kinds(self) -> list[str]:
        with closing(ledger_of(self.both)) as ledger:
            return [row.kind for row in history(ledger.newest_first())][::-1]

    def count(self) -> None:
        """Count the batches that are decided: a killed driver may have decided one more than it knew."""
        with closing(ledger_of(self.both)) as ledger:
            tail = ledger.tail()
        self.batches = 0 if tail is None else tail.summary.next_batch_id or 0

    def require_exact(self, *, since: int = 0) -> None:
        assert self.rows("lake") == Counter(range(self.batches))
        assert self.rows("later") == Counter(range(since, self.batches))
        assert verify(self.both).ok


class Race:
    """A driver and backfills that are started, go on and are killed in any order. Once the file has the sink it keeps it."""

    def __init__(self, world: World, chance: random.Random) -> None:
        self.world, self.chance = world, chance
        self.sinks, self.depth = ["lake"], 0
        self.driver: Driver | None = None
        self.staging: list[Driver] = []

    def run(self, *, steps: int) -> None:
        self.start()
        for _ in range(steps):
            self.step()
        self.finish()

    def step(self) -> None:
        fault = f"{self.chance.choice(points())}=kill@{self.chance.randint(1, 4)}" if self.chance.random() < 0.4 else ""
        faults.arm(fault)
        try:
            self.chance.choice([self.deliver, self.deliver, self.backfill, self.backfill, self.start, self.add_sink])()
        except KilledError:
            self.end_driver()
        except (Fenced, Retryable):
            pass
        finally:
            faults.arm("")

    def deliver(self) -> None:
        driver = self.driver
        if driver is not None and driver not in self.staging:
            self.world.count()
            self.staging.append(driver)
            try:
                driver.go_on(meanwhile=self.nested(self.backfill))
            finally:
                self.staging.remove(driver)

    def backfill(self) -> None:
        self.world.backfill(lambda _: self.nested(self.deliver)())

    def nested(self, act: Callable[[], None]) -> Callable[[], None]:
        """Return what does `act`, or a restart, in the midst of the other process's step, sometimes."""

        def do() -> None:
            if self.depth < 2 and self.chance.random() < 0.3:
                self.depth += 1
                try:
                    self.chance.choice([act, act, self.start])()
                finally:
                    self.depth -= 1

        return do

    def add_sink(self) -> None:
        """Put the sink into the file, once a backfill has begun."""
        if "backfill_opened" in self.world.kinds():
            self.sinks = ["lake", "later"]

    def start(self) -> None:
        self.end_driver()
        self.world.count()
        self.driver = self.world.driver(*self.sinks)
        self.world.count()

    def end_driver(self) -> None:
        if self.driver is not None:
            self.driver.end()
        self.driver = None

    def finish(self) -> None:
        self.depth = 9
        self.world.backfill()
        self.sinks = ["lake", "later"]
        self.start()
        assert self.driver is not None
        self.driver.go_on()
        self.world.backfill() if "later" in self.apart() else None
        self.driver.go_on()
        assert not self.apart()
        self.world.require_exact()
        self.start()
        self.end_driver()
        recover(self.world.both)
        assert not [*self.world.root.rglob("*.staged")]

    def apart(self) -> frozenset[SinkName]:
        with closing(ledger_of(self.world.both)) as ledger:
            tail = ledger.tail()
        assert tail is not None
        return sinks_apart(tail.summary)
