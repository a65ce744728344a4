"""A backfill on a real ledger and real accounts, without Spark: killed at every step, and what the ledger knows of it."""

import json
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
from tests.conformance.http_rig import endpoint
from tests.killed import KilledError, is_killed_by
from tests.unit.parquet_target import SCHEMA, plan_of, rows, stage
from tests.unit.test_run_operations import Driver

import penstock
from penstock.commit.backfill import Given, LackingBatches, give_lacking, lacking_batches, require_backfilled
from penstock.commit.publication import decision_in
from penstock.commit.rewind import decided_to
from penstock.core import faults
from penstock.core.model import Adopted, BatchId, Decision, Entry, Position, SinkName, Staged
from penstock.errors import Fenced, LedgerMismatch, PublishFailed, Refused
from penstock.observe.history import history
from penstock.run.assembly import DeliveryPlan, assemble, ledger_of
from penstock.run.backfill import _ordered as ordered
from penstock.run.doctor import doctor_of
from penstock.run.operations import adopt, recover, sweep, verify
from penstock.run.reading import read_table
from penstock.run.runtime import Runtime, coordinator_of, opened_by_this_process, prepare
from penstock.run.status import status_of
from penstock.sink.http import sink as http

pytestmark = pytest.mark.usefixtures("kills_raise")

LATER = SinkName("later")


class World:
    """A pipeline whose batch N holds row N, first with one sink and then with a second one."""

    def __init__(self, root: Path, *, batches: int = 3) -> None:
        self.root = root
        driver = Driver(self.plan("lake"), root / "home" / "checkpoint")
        driver.plan(0)
        with closing(driver.runtime):
            driver.go_on(*range(batches))

    def plan(self, *sinks: str) -> DeliveryPlan:
        return plan_of(self.root, *sinks)

    @property
    def both(self) -> DeliveryPlan:
        return self.plan("lake", "later")

    def rows(self, sink: str) -> "Counter[int]":
        root = self.root / sink
        return Counter(ds.dataset(root, format="parquet").to_table()["id"].to_pylist() if root.exists() else ())

    def backfill(self, *, from_batch: int | None = None, stop_after: int | None = None) -> Given:
        """Give the later sink what it lacks; with `stop_after` die before the next batch is staged."""
        runtime = assemble(self.both)
        with closing(runtime):
            prepare(runtime, schema=SCHEMA)
            coordinator = coordinator_of(runtime)
            done: list[int] = []

            def staged(entry: Entry) -> Decision:
                if stop_after is not None and len(done) == stop_after:
                    raise KilledError
                before = decision_in(entry)
                done.append(before.batch.batch_id)
                pieces = self.stage(runtime, before.batch.batch_id, generation=coordinator.generation)
                return Decision(batch=before.batch, staged=pieces, rows_in=1, schema=SCHEMA)

            return give_lacking(
                coordinator,
                runtime.sinks[1],
                opened_by_this_process(runtime),
                lacking=lambda: lacking_batches(runtime.ledger, LATER, from_batch=_batch(from_batch)).entries,
                stage=staged,
            )

    def stage(self, runtime: Runtime, batch_id: int, *, generation: int) -> tuple[Staged, ...]:
        sink: Any = runtime.sinks[1]
        return tuple(stage(sink, rows(batch_id), batch_id=batch_id, generation=generation))

    def lacking(self, from_batch: int | None = None) -> LackingBatches:
        with closing(ledger_of(self.both)) as ledger:
            return lacking_batches(ledger, LATER, from_batch=_batch(from_batch))

    def require_backfilled(self) -> None:
        with closing(assemble(self.both)) as runtime:
            tail = runtime.ledger.tail()
            assert tail is not None
            require_backfilled(tail.summary, runtime.sinks)


def _batch(number: int | None) -> BatchId | None:
    return None if number is None else BatchId(number)


def numbers(lacking: LackingBatches) -> list[int]:
    return [decision_in(entry).batch.batch_id for entry in lacking.entries]


def test_a_backfill_gives_every_batch_once_and_verify_holds(tmp_path: Path) -> None:
    world = World(tmp_path)
    assert numbers(world.lacking()) == [0, 1, 2]
    assert [each.totals.rows for each in world.backfill().batches] == [1, 1, 1]
    assert world.rows("later") == world.rows("lake") == Counter(range(3))
    assert verify(world.both).ok
    world.require_backfilled()
    found = world.lacking()
    assert (numbers(found), found.given) == ([], 3)
    assert world.backfill() == Given(recovered=None, batches=())
    kinds = [row.kind for row in history(ledger_of(world.both).newest_first())]
    assert kinds[:8] == ["opened", "opened", "opened", "backfilled", "backfilled", "backfilled", "opened", "decided"]


def test_a_table_is_read_as_the_backfill_left_it(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.backfill(from_batch=1)
    found = read_table(world.both, "later", None, None, added=False, counted=False)
    assert sorted(file.batch_id for file in found.files if file.batch_id is not None) == [1, 2]
    [added] = read_table(world.both, "later", None, 1, added=True, counted=False).files
    assert added.batch_id == 1
    assert read_table(world.both, "lake", None, None, added=False, counted=False).as_of != found.as_of


def killed_and_finished(world: World, fault: str) -> bool:
    """Return whether the fault fired; then the next call finishes, and everything is there once."""
    if not is_killed_by(fault, world.backfill):
        return False
    sweep(world.both, dry_run=False)  # takes nothing that was decided
    recover(world.plan("lake"))  # nor does a newer run that lacks the sink
    assert world.backfill().batches is not None
    assert world.rows("later") == Counter(range(2))
    assert verify(world.both).ok
    assert not [*world.root.rglob("*.staged")]
    return True


PREFIXES = ("ledger.sqlite", "parquet.marker", "parquet.publish", "parquet.prepare", "parquet.stage.seal", "rename.", "claim.")


def test_a_backfill_that_is_killed_at_any_step_is_finished_by_the_next(tmp_path: Path) -> None:
    points = [point.name for point in faults.points() if point.name.startswith(PREFIXES)]
    reached = [
        point
        for point in points
        for occurrence in (1, 2, 3)
        if killed_and_finished(World(tmp_path / f"{point}-{occurrence}", batches=2), f"{point}=kill@{occurrence}")
    ]
    assert {"ledger.sqlite_commit", "rename.move", "parquet.marker.place", "parquet.stage.seal", "claim.place"} <= set(reached)


@pytest.mark.parametrize("fault", ["rename.move=error@2", "rename.move=lost@2", "parquet.marker.place=lost"])
def test_what_a_failed_call_decided_is_published_by_the_next(tmp_path: Path, fault: str) -> None:
    world = World(tmp_path)
    faults.arm(f"ledger.sqlite_commit=lost@3,{fault}")
    with pytest.raises(PublishFailed):
        world.backfill()
    assert world.backfill().recovered is not None
    assert world.rows("later") == Counter(range(3))
    assert verify(world.both).ok


def test_a_start_with_the_sink_is_refused_until_the_backfill_has_ended_and_the_driver_goes_on_behind_it(tmp_path: Path) -> None:
    world = World(tmp_path)
    with pytest.raises(KilledError):
        world.backfill(stop_after=2)
    with pytest.raises(Refused, match="begun and not ended"):
        world.require_backfilled()
    assert "begun and not ended" in (doctor_of(world.both).refused or "")
    found = status_of(world.both)
    assert (found.health, found.text.endswith("`penstock backfill FILE --sink later` goes on where it stopped.")) == (
        "conflict",
        True,
    )
    assert verify(world.both).ok
    meanwhile = Driver(world.plan("lake"), world.root / "home" / "checkpoint")  # without the sink it goes on
    with closing(meanwhile.runtime):
        meanwhile.go_on(3)
    assert numbers(world.lacking()) == [2, 3]
    world.backfill()
    world.require_backfilled()
    assert world.rows("later") == Counter(range(4))
    assert verify(world.both).ok
    joined = Driver(world.plan("later", "lake"), world.root / "home" / "checkpoint")
    with closing(joined.runtime):
        joined.go_on(4)
    assert world.rows("later") == Counter(range(5))
    assert verify(world.plan("later")).ok
    assert world.lacking().joined == 4


def test_a_backfill_that_a_newer_run_fenced_decides_nothing(tmp_path: Path) -> None:
    world = World(tmp_path)
    runtime = assemble(world.both)
    with closing(runtime):
        prepare(runtime, schema=SCHEMA)
        coordinator = coordinator_of(runtime)
        coordinator.open(opened_by_this_process(runtime))
        [first, *_] = world.lacking().entries
        world.backfill()
        decision = Decision(
            batch=decision_in(first).batch,
            staged=world.stage(runtime, 0, generation=coordinator.generation),
            rows_in=1,
            schema=SCHEMA,
        )
        with pytest.raises(Fenced):
            coordinator.backfill(runtime.sinks[1], decision, original=first.position)
    assert world.rows("later") == Counter(range(3))
    assert verify(world.both).ok


def test_batches_come_in_their_order(tmp_path: Path) -> None:
    world = World(tmp_path)
    assert numbers(world.lacking(1)) == [1, 2]
    with pytest.raises(KilledError):
        world.backfill(from_batch=1, stop_after=1)
    assert numbers(world.lacking()) == numbers(world.lacking(1)) == [2]
    with pytest.raises(Refused, match="given batches from 1 on"):
        world.lacking(0)
    with pytest.raises(Refused, match="begun and goes on with batch 2; --from-batch 3 leaves a gap"):
        world.lacking(3)
    assert numbers(world.lacking(2)) == [2]


def test_a_batch_that_was_not_decided_is_no_begin(tmp_path: Path) -> None:
    """The sink was said to lack nothing."""
    world = World(tmp_path)
    assert numbers(world.lacking(2)) == [2]
    with pytest.raises(Refused, match="Batch 3 was not delivered: the ledger has decided batches up to 2"):
        world.lacking(3)


def test_what_the_ledger_does_not_tell_is_counted(tmp_path: Path) -> None:
    world = World(tmp_path)
    with closing(ledger_of(world.both)) as ledger:
        ledger.prune(below=world.lacking().entries[1].position)
    found = world.lacking()
    assert (found.unknown, numbers(found)) == (1, [1, 2])
    assert world.lacking(1).unknown == 0


def test_batches_of_an_earlier_checkpoint_are_counted(tmp_path: Path) -> None:
    world = World(tmp_path)
    (world.root / "home/checkpoint").rename(world.root / "home/before")
    adopt(world.plan("lake"), reason="lost", yes=True)
    with closing(ledger_of(world.both)) as ledger:
        assert any(isinstance(entry.body, Adopted) for entry in ledger.newest_first())
    found = world.lacking()
    assert (found.earlier, numbers(found)) == (3, [])
    assert world.lacking(0).earlier == 0


def test_what_an_adoption_left_behind_of_a_backfill_is_no_silent_gap(tmp_path: Path) -> None:
    world = World(tmp_path)
    with pytest.raises(KilledError):
        world.backfill(stop_after=1)
    (world.root / "home/checkpoint").rename(world.root / "home/before")
    adopt(world.plan("lake"), reason="lost", yes=True)
    for from_batch in (None, 0):
        found = world.lacking(from_batch)
        assert (found.earlier, found.begun, numbers(found)) == (2, True, [])


def test_what_the_ledger_forgot_behind_a_backfill_is_no_silent_gap(tmp_path: Path) -> None:
    world = World(tmp_path)
    with pytest.raises(KilledError):
        world.backfill(stop_after=1)
    driver = Driver(world.plan("lake"), world.root / "home" / "checkpoint")
    with closing(driver.runtime):
        driver.go_on(3)
    newest = world.lacking().entries[-1].position
    for below, expected in ((newest - 2, (1, 2, [3])), (newest, (0, 3, [3]))):  # with the entry of the backfill, and without it
        with closing(ledger_of(world.both)) as ledger:
            ledger.prune(below=Position(below))
        found = world.lacking()
        assert (found.first, found.unknown, numbers(found)) == expected
    with pytest.raises(LedgerMismatch, match="no longer holds what the backfill of sink 'later' decided last"):
        world.backfill()


def test_a_sink_that_has_newer_batches_already_gets_the_older_ones_beside_them(tmp_path: Path) -> None:
    world = World(tmp_path, batches=2)
    joined = Driver(world.plan("later", "lake"), world.root / "home" / "checkpoint")
    with closing(joined.runtime):
        joined.go_on(2)
    found = world.lacking()
    assert (numbers(found), found.joined, found.joins_in_between) == ([0, 1], 2, True)
    world.backfill()
    again = Driver(world.plan("later", "lake"), world.root / "home" / "checkpoint")
    with closing(again.runtime):
        again.go_on(3)
    assert world.rows("later") == Counter(range(4))
    assert verify(world.plan("later")).ok
    found = world.lacking()
    assert (found.given, found.joins_in_between) == (2, False)


def test_a_sink_that_was_filled_needs_not_know_the_newest_batch_any_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It remembers the last 50 positions, as other sinks do: a longer backfill pushes out what the pipeline gave it before."""
    monkeypatch.setattr(http, "_REMEMBERED", 2)
    with endpoint() as (url, received):

        class Hooked(World):
            def plan(self, *sinks: str) -> DeliveryPlan:
                made = super().plan("lake").settings.sinks | {"later": penstock.HTTP(url=url, receiver="idempotent")}
                return penstock.Delivery("flights", home=self.root / "home", sinks={name: made[name] for name in sinks}).plan

        world = Hooked(tmp_path, batches=4)
        for number in (4, 5):
            joined = Driver(world.plan("later", "lake"), tmp_path / "home" / "checkpoint")
            with closing(joined.runtime):
                joined.go_on(number)
            if number == 4:
                with pytest.raises(KilledError):
                    world.backfill(stop_after=3)
                world.backfill()
        killed = Driver(world.plan("later", "lake"), tmp_path / "home" / "checkpoint")
        faults.arm("http.request=kill")
        with closing(killed.runtime), pytest.raises(KilledError):
            killed.go_on(6)
        faults.arm("")
        recover(world.plan("later", "lake"))
        assert Counter(json.loads(line)["id"] for line in received.lines()) == Counter(range(7))
        assert received.repeated == 0


def test_sinks_in_which_the_order_of_rows_counts() -> None:
    """A tombstone of a topic is undone by an older record that comes behind it."""
    given = {"bootstrap": "broker:9092", "topic": "flights", "value": "json", "key": "id"}
    assert ordered(penstock.Kafka(**given)) is None
    assert ordered(penstock.Kafka(**given, delete_when="cancelled")) == "delete_when"
    assert ordered(penstock.SQLite(url="sqlite:///f.db", table="f", write="upsert", key=["id"])) == "write: upsert"
    assert ordered(penstock.Cassandra(url="cassandra://host/f", table="f", key=["id"])) == "write: upsert"
    history = {"url": "sqlite:///f.db", "table": "f", "write": "upsert", "key": ["id"], "history": True}
    assert ordered(penstock.SQLite(**history)) == "write: upsert"
    assert ordered(penstock.SQLite(**history, sequence_by="at", delete_when="gone")) == "write: upsert"
    assert ordered(penstock.SQLite(**history, sequence_by="at")) is None  # every version is put in its place


def test_an_older_copy_of_the_sink_is_refused(tmp_path: Path) -> None:
    """A copy of the ledger that went on by itself, or a place that was put back as it was before."""
    world = World(tmp_path)
    world.backfill()
    (world.root / "later").rename(world.root / "gone")
    (world.root / ".penstock-staging" / "later").rename(world.root / "gone-staging")
    runtime = assemble(world.both)
    with closing(runtime), pytest.raises((Refused, LedgerMismatch), match="shows no trace of the 3 rows"):
        prepare(runtime, schema=SCHEMA)


def test_a_rewind_does_not_go_behind_it(tmp_path: Path) -> None:
    """The sink would lose what it was given, and nothing would give it again."""
    world = World(tmp_path)
    world.backfill()
    with closing(ledger_of(world.both)) as ledger, pytest.raises(Refused, match="'later' was given earlier batches at position"):
        decided_to(ledger, BatchId(1))
