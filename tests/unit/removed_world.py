"""A pipeline of two accounts on directories whose files are removed, and a driver of it."""

import shutil
from contextlib import closing
from pathlib import Path

from tests.unit.parquet_target import SCHEMA, rows, stage
from tests.unit.test_run_operations import Driver

import penstock
from penstock.commit.outcome import Delivered, StagedBatch
from penstock.core.model import BatchId, Generation, RemovalAccepted
from penstock.run.assembly import DeliveryPlan, ledger_of
from penstock.run.removal import Acceptance, accept_removed
from penstock.sink.parquet import ParquetSink


class Run(Driver):
    """A driver whose batch N holds rows 10N to 10N + 4: 3 of account `a` in two partitions, 2 of account `b`."""

    def deliver(self, batch_id: int) -> Delivered:
        sink, number = self.sink, BatchId(batch_id)
        assert isinstance(sink, ParquetSink)
        batch = self.runtime.checkpoint.batch(number, self.runtime.source_names(number))

        def staged(generation: Generation) -> StagedBatch:
            first = batch_id * 10
            here = stage(sink, rows(first, first + 1, first + 2), routes=list("aab"), batch_id=batch_id, generation=generation)
            there = stage(
                sink, rows(first + 3, first + 4, place="there"), routes=list("ab"), batch_id=batch_id, generation=generation
            )
            return StagedBatch(pieces=(*here, *there), rows_in=5, schema=SCHEMA)

        return self.coordinator.deliver(batch, staged)


class World:
    """A pipeline of two accounts on directories, and a driver of it."""

    def __init__(self, root: Path, *, ledger: str | None = None) -> None:
        self.root = root
        accounts = {name: self.account(name) for name in ("a", "b")}
        lake = penstock.Parquet(accounts=accounts, route={"column": "place"}, unrouted="fail", partition_by=["place"])
        self.plan: DeliveryPlan = penstock.Delivery("flights", home=root / "home", sinks={"lake": lake}, ledger=ledger).plan

    def account(self, name: str) -> Path:
        return self.root / "lake" / name

    def driver(self) -> Run:
        run = Run(self.plan, self.root / "home" / "checkpoint")
        run.plan(0)
        return run

    def delivered(self, batches: int = 4) -> "World":
        run = self.driver()
        run.go_on(*range(batches))
        run.runtime.close()
        return self

    def files(self, account: str = "a", batch: int | None = None) -> list[Path]:
        found = sorted(self.account(account).rglob("*.parquet"))
        return [path for path in found if batch is None or f"-b{batch}-" in path.name]

    def remove(self, *batches: int, account: str = "a") -> list[Path]:
        gone = [path for batch in batches for path in self.files(account, batch)]
        for path in gone:
            path.rename(self.root / path.name)
        return gone

    def restore(self, *paths: Path) -> None:
        for path in paths:
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(self.root / path.name, path)

    def accept(self, *, yes: bool = True, before: str | None = None, forgotten: bool = False) -> Acceptance:
        return accept_removed(self.plan, sink=None, before=before, forgotten=forgotten, reason="kept for 90 days", yes=yes)

    def acts(self) -> list[RemovalAccepted]:
        with closing(ledger_of(self.plan)) as ledger:
            return [entry.body for entry in ledger.newest_first() if isinstance(entry.body, RemovalAccepted)]
