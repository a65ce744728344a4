"""Acts on the checkpoint of a pipeline: a real ledger and real accounts say what may be done, without Spark."""

import json
import os
import shutil
import socket
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.parquet_target import Target
from tests.unit.test_run_operations import Driver, plan_of

from penstock.checkpoint.entries import unfinished_text
from penstock.checkpoint.files import open_files
from penstock.checkpoint.repair_plan import plan_repair
from penstock.checkpoint.verification import verify_checkpoint
from penstock.core.faults import arm
from penstock.core.model import BatchId
from penstock.errors import CheckpointDamaged, CheckpointReplaced, OffsetsConflict, Refused, Retryable
from penstock.observe.supervision import Supervision, note_supervision
from penstock.run.assembly import DeliveryPlan
from penstock.run.checkpoint_acts import collect_checkpoint, repair_checkpoint, rewind_checkpoint, undo_act
from penstock.run.operations import verify
from penstock.run.rebuilding import rebuild_checkpoint
from penstock.run.runtime import now_ms, opened_by_this_process

QUERY = "5f0c9f0e-0000-4000-8000-000000000001"


class World:
    """A pipeline that has delivered batches 0 to 3, of which its checkpoint has all committed, and has stopped."""

    def __init__(self, directory: Path) -> None:
        self.target = Target(directory)
        self.plan = plan_of(self.target)
        self.root = Path(self.plan.spark_checkpoint)
        driver = self.driver()
        for batch_id in range(4):
            driver.plan(batch_id)
            driver.deliver(batch_id)
            driver.write(f"commits/{batch_id}", 'v1\n{"nextBatchWatermarkMs":0}')
        driver.runtime.close()

    def driver(self) -> Driver:
        driver = Driver(self.plan, self.root)
        driver.write("metadata", f'{{"id":"{QUERY}"}}')
        return driver

    def content(self) -> dict[str, str]:
        found = {str(path.relative_to(self.root)): path for path in self.root.rglob("*") if path.is_file()}
        return {name: path.read_text() for name, path in found.items() if not name.startswith("penstock-acts/")}


@pytest.fixture(name="world")
def _world(tmp_path: Path) -> World:
    return World(tmp_path)


def rewind(plan: DeliveryPlan, to_batch: int, *, yes: bool = True) -> None:
    rewind_checkpoint(plan, to_batch=BatchId(to_batch), yes=yes)


def test_the_newest_decided_batch_runs_again_and_is_recognised(world: World) -> None:
    before = world.content()
    rewind(world.plan, 2, yes=False)
    assert world.content() == before
    done = rewind_checkpoint(world.plan, to_batch=BatchId(2), yes=True)
    assert done.act.notes == ("The ledger has decided batch 3: Spark runs it again, and no sink gets it twice.",)
    assert world.content() == {name: text for name, text in before.items() if name != "commits/3"}
    assert world.driver().deliver(3).already
    assert world.target.content() == Counter(str({"id": number, "place": "here", "day": None}) for number in range(4))
    assert verify(world.plan).ok


def test_a_batch_that_was_planned_and_not_decided_is_planned_anew(world: World) -> None:
    driver = world.driver()
    driver.plan(4)
    rewind(world.plan, 3)
    assert "offsets/4" not in world.content()
    driver = world.driver()
    driver.write("offsets/4", 'v1\n{}\n{"t":{"0":44}}')
    assert not driver.deliver(4).already


def test_batches_that_the_ledger_would_not_recognise_are_not_planned_anew(world: World) -> None:
    before = world.content()
    with pytest.raises(Refused, match=r"has decided batches 2 to 3, and Spark would plan batches from 3 on anew") as refused:
        rewind(world.plan, 1)
    assert refused.value.remedy == (
        "Name batch 2: the one after it runs again with the offsets that were decided. Or take batches back from sinks and "
        "ledger, too: `penstock rewind FILE --to-batch 1`"
    )
    with pytest.raises(Refused, match=r"cannot go back to the end of batch 9|the records of batches 4 to 9 would be lost"):
        rewind(world.plan, 9)
    assert world.content() == before


def test_another_checkpoint_is_not_rewound(world: World) -> None:
    other = world.root / "offsets" / "2"
    text = other.read_text()
    other.write_text(text.replace('"0":2', '"0":22'))
    with pytest.raises(OffsetsConflict):
        rewind(world.plan, 2)
    other.write_text(text)
    (world.root / "metadata").write_text('{"id":"5f0c9f0e-0000-4000-8000-00000000000f"}')
    with pytest.raises(CheckpointReplaced):
        rewind(world.plan, 2)


def test_a_run_that_is_elsewhere_is_fenced(world: World) -> None:
    driver = world.driver()
    rewind(world.plan, 2)
    with pytest.raises(Exception, match="newer"):
        driver.coordinator.require_newest()


@pytest.mark.parametrize("act", ["rewind", "gc", "repair", "undo"])
def test_beside_a_driver_that_runs_every_act_is_refused(world: World, act: str) -> None:
    driver = world.driver()
    owner = f"{socket.gethostname()} process {os.getppid()}"
    driver.coordinator.open(replace(opened_by_this_process(driver.runtime), owner=owner))
    with pytest.raises(Refused, match=rf"works on its checkpoint: process {os.getppid()} of this machine runs"):
        perform(world.plan, act)


def test_under_a_supervisor_every_act_is_refused(world: World) -> None:
    owner = f"{socket.gethostname()} process {os.getpid()}"
    home = world.plan.settings.home
    noted = Supervision(owner=owner, at_ms=now_ms(), state="waiting", restarts=1, ended=None, next_start_ms=None, log="")
    note_supervision(home, noted)
    with pytest.raises(Refused, match="supervises it") as refused:
        perform(world.plan, "rewind")
    assert refused.value.remedy == "Stop `penstock supervise`, and run the command again."


def perform(plan: DeliveryPlan, act: str) -> None:
    if act == "rewind":
        rewind(plan, 2)
    elif act == "gc":
        collect_checkpoint(plan, keep_batches=None, yes=True)
    elif act == "repair":
        repair_checkpoint(plan, query_id=None, yes=True)
    else:
        undo_act(plan, verb="rewind", yes=True)


def test_an_act_of_a_pipeline_is_taken_back(world: World) -> None:
    before = world.content()
    rewind(world.plan, 2)
    assert not undo_act(world.plan, verb="rewind", yes=False).done
    assert undo_act(world.plan, verb="rewind", yes=True).done
    assert world.content() == before


def test_an_act_of_a_pipeline_that_failed_half_way_is_finished_by_the_same_command(world: World) -> None:
    arm("checkpoint.done=error")
    with pytest.raises(Retryable):
        rewind(world.plan, 2)
    arm("")
    assert "commits/3" not in world.content()
    assert rewind_checkpoint(world.plan, to_batch=BatchId(2), yes=False).finished
    done = rewind_checkpoint(world.plan, to_batch=BatchId(2), yes=True)
    assert (done.done, done.finished, done.backup) == (True, True, "penstock-acts/0001-rewind")
    assert world.driver().deliver(3).already


def damaged(world: World, damage: str) -> None:
    if damage == "no metadata":
        (world.root / "metadata").unlink()
    elif damage == "torn metadata":
        (world.root / "metadata").write_text('{"id":"5f0')
    elif damage == "hole":
        (world.root / "offsets" / "2").unlink()
    elif damage == "torn commit":
        (world.root / "commits" / "3").write_text("v1")
    elif damage == "torn plan":
        world.driver().write("offsets/4", "v1\n{")
    elif damage == "commit ahead":
        world.driver().write("commits/4", 'v1\n{"nextBatchWatermarkMs":0}')


@pytest.mark.parametrize("damage", ["no metadata", "torn metadata", "hole", "torn commit", "torn plan", "commit ahead"])
def test_what_the_ledger_knows_repairs_a_checkpoint_exactly(world: World, damage: str) -> None:
    whole = world.content()
    damaged(world, damage)
    done = repair_checkpoint(world.plan, query_id=None, yes=True)
    found = verify_checkpoint(str(world.root))
    assert (found.ok, found.outlook.batch_id, done.act.next_batch_id) == (True, 4, 4)
    mended = world.content()
    assert mended["metadata"] == whole["metadata"]
    assert json.loads(mended["offsets/2"].split("\n")[2]) == {"t": {"0": 2}}
    assert [name for name in mended if name not in whole] == []
    driver = world.driver()
    driver.plan(4)
    assert not driver.deliver(4).already
    assert verify(world.plan).ok


def test_a_commit_that_nothing_tells_is_made_by_running_its_batch_again(world: World) -> None:
    (world.root / "commits" / "0").write_text('v1\n{"nextBatchWatermarkMs":7}')
    damaged(world, "torn commit")
    done = repair_checkpoint(world.plan, query_id=None, yes=True)
    assert done.act.notes == ("Batch 3 runs again, and the ledger recognises it.",)
    assert (done.act.next_batch_id, verify_checkpoint(str(world.root)).ok) == (3, True)
    assert world.driver().deliver(3).already
    assert verify(world.plan).ok


def test_without_the_ledger_the_same_is_refused(world: World) -> None:
    """A torn plan can be of a batch that was delivered."""
    damaged(world, "torn plan")
    with pytest.raises(Refused, match="cannot be repaired without the risk that rows are lost or repeated: offsets/4"):
        plan_repair(open_files(world.root))


def test_the_plan_of_a_decided_batch_is_not_thrown_away(world: World) -> None:
    (world.root / "commits" / "3").unlink()
    (world.root / "offsets" / "3").write_text("v1\n{")
    with pytest.raises(Refused, match="offsets/3"):
        repair_checkpoint(world.plan, query_id=None, yes=True)


def began(directory: Path) -> Driver:
    """A pipeline that was killed when Spark had planned its first batch, and nothing was decided yet."""
    target = Target(directory)
    plan = plan_of(target)
    driver = Driver(plan, Path(plan.spark_checkpoint))
    driver.write("metadata", f'{{"id":"{QUERY}"}}')
    driver.write("offsets/0", "v1\n{")
    driver.runtime.close()
    return driver


def test_a_torn_plan_of_the_first_batch_is_planned_anew(tmp_path: Path) -> None:
    driver = began(tmp_path)
    plan = plan_of(Target(tmp_path))
    done = repair_checkpoint(plan, query_id=None, yes=True)
    assert (done.act.next_batch_id, [step.place for step in done.act.steps]) == (0, ["offsets/0"])
    driver = Driver(plan, driver.root)
    driver.plan(0)
    assert not driver.deliver(0).already
    assert verify(plan).ok


def test_a_start_that_refuses_a_torn_checkpoint_names_the_repair(world: World) -> None:
    driver = world.driver()
    driver.plan(4)
    damaged(world, "torn metadata")
    with pytest.raises(CheckpointDamaged, match="metadata is not JSON") as refused:
        driver.deliver(4)
    assert "Without a copy, `penstock checkpoint repair FILE` mends what can be mended" in refused.value.remedy
    assert repair_checkpoint(world.plan, query_id=None, yes=True).done
    assert not world.driver().deliver(4).already


def test_before_the_first_decision_what_cannot_be_repaired_is_begun_anew(tmp_path: Path) -> None:
    driver = began(tmp_path)
    (driver.root / "metadata").write_text('{"id":"5f0')
    plan = plan_of(Target(tmp_path))
    with pytest.raises(Refused, match="metadata") as refused:
        repair_checkpoint(plan, query_id=None, yes=True)
    assert refused.value.remedy.startswith(
        "The ledger is empty: if it is the right one, nothing was delivered yet, so remove the"
    )
    shutil.rmtree(driver.root)
    driver = Driver(plan, driver.root)
    driver.plan(0)
    assert not driver.deliver(0).already


@pytest.mark.parametrize("committed", [True, False])
def test_beside_an_empty_ledger_no_plan_of_a_later_batch_is_thrown_away(tmp_path: Path, *, committed: bool) -> None:
    """The ledger is lost, or not mounted: what it decided is not known."""
    driver = began(tmp_path)
    driver.plan(0)
    if committed:
        driver.write("commits/0", 'v1\n{"nextBatchWatermarkMs":0}')
    driver.write("offsets/1", "v1\n{")
    with pytest.raises(Refused, match="offsets/1") as refused:
        repair_checkpoint(plan_of(Target(tmp_path)), query_id=None, yes=True)
    assert refused.value.remedy.startswith("Restore it from a copy.")
    assert (driver.root / "offsets" / "1").exists()


@pytest.mark.parametrize("is_named", [True, False])
def test_another_checkpoint_is_not_repaired_by_what_the_ledger_knows(world: World, *, is_named: bool) -> None:
    """Its batch 4 is torn, and the ledger has not decided a batch 4: of another query that says nothing."""
    damaged(world, "torn plan")
    if is_named:
        (world.root / "metadata").write_text('{"id":"5f0c9f0e-0000-4000-8000-00000000000f"}')
    else:
        (world.root / "metadata").unlink()
        (world.root / "offsets" / "3").write_text('v1\n{}\n{"t":{"0":33}}')
    before = world.content()
    with pytest.raises(CheckpointReplaced if is_named else OffsetsConflict):
        repair_checkpoint(world.plan, query_id=None, yes=True)
    assert world.content() == before


def test_gc_keeps_as_many_batches_as_spark_would(world: World) -> None:
    assert collect_checkpoint(world.plan, keep_batches=None, yes=True).act.steps == ()
    done = collect_checkpoint(world.plan, keep_batches=2, yes=True)
    assert {step.place for step in done.act.steps} == {"commits/0", "commits/1", "offsets/0"}
    assert verify_checkpoint(str(world.root)).ok
    rewind(world.plan, 2)


def test_while_an_act_is_unfinished_no_start_goes_on(world: World) -> None:
    (world.root / "metadata").write_bytes(unfinished_text("penstock-acts/0001-rewind"))
    driver = Driver(world.plan, world.root / "elsewhere")
    with pytest.raises(CheckpointDamaged, match="metadata names the act penstock-acts/0001-rewind"):
        driver.runtime.checkpoint.query_id()


def test_a_checkpoint_that_is_whole_is_told_before_spark_starts_for_the_transform(world: World) -> None:
    def starts() -> None:
        raise AssertionError("Spark starts")

    pipeline: Any = SimpleNamespace(settings=SimpleNamespace(sources={"t": None}, transform="SELECT 1"), plan=world.plan)
    with pytest.raises(Refused, match=r"is not lost: it is whole, of the query .* and ends with batch 3") as refused:
        rebuild_checkpoint(pipeline, session=starts, yes=True)  # type: ignore[arg-type]
    assert refused.value.remedy.startswith("Nothing is to be made again: start the pipeline")
    shutil.rmtree(world.root)
    with pytest.raises(AssertionError, match="Spark starts"):
        rebuild_checkpoint(pipeline, session=starts, yes=True)  # type: ignore[arg-type]
