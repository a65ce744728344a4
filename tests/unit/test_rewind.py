"""`penstock rewind`: every batch after one is taken back from accounts, ledger and checkpoint, and done again exactly."""

from contextlib import closing
from pathlib import Path

import pytest
from tests.unit import rewound_world
from tests.unit.rewound_world import RewoundWorld

import penstock
from penstock.commit.outcome import Delivered
from penstock.commit.publication import decision_in
from penstock.core import faults
from penstock.core.model import Decided, Opened, Rewound, SinkName
from penstock.errors import BatchGap, CheckpointReplaced, OffsetsConflict, PenstockError, Refused, Retryable
from penstock.run.assembly import DeliveryPlan, assemble
from penstock.run.batch_stager import BatchStager
from penstock.run.checkpoint_acts import undo_act
from penstock.run.compare import compare
from penstock.run.operations import recover, verify
from penstock.run.reading import read_table
from penstock.run.status import status_of

delivered, world = rewound_world.delivered, rewound_world.world


@pytest.mark.parametrize("to_batch", [2, 0])
def test_later_batches_are_taken_back_and_done_again(world: RewoundWorld, to_batch: int) -> None:
    before = world.files("a") + world.files("b")
    asked = world.rewind(to_batch, yes=False)
    assert (asked.needed, asked.refused, asked.done, asked.newest) == (True, False, False, 3)
    assert asked.sinks[0].totals.rows == 5 * (3 - to_batch)
    assert world.files("a") + world.files("b") == before
    done = world.rewind(to_batch)
    assert done.done
    assert world.batches() == list(range(to_batch + 1))
    assert world.files("a") + world.files("b") == [
        path for path in before if int(path.name.split("-b")[1].split("-")[0]) <= to_batch
    ]
    assert world.numbers("commits") == world.numbers("offsets") == list(range(to_batch + 1))
    found = verify(world.plan)
    assert found.ok, found
    assert found.sinks["lake"].accounts["a"].expected.rows == 3 * (to_batch + 1)
    assert found.batches == {done.position: to_batch}
    world.go_on(*range(to_batch + 1, 6))
    assert world.batches() == list(range(6))
    found = verify(world.plan)
    assert found.ok, found
    assert found.sinks["lake"].accounts["a"].found.rows == 3 * 6


def test_behind_the_newest_batch_there_is_nothing_to_take_back_or_to_keep(world: RewoundWorld) -> None:
    for keep in ((), ("lake",)):
        asked = world.rewind(3, *keep)
        assert (asked.needed, asked.done) == (False, False)
    assert world.batches() == [0, 1, 2, 3]


def test_the_ledger_says_what_was_taken_back(world: RewoundWorld) -> None:
    world.rewind(1)
    newest, act, opened, *_ = world.entries()
    assert isinstance(newest.body, Opened)
    assert isinstance(opened.body, Opened)
    assert isinstance(act.body, Rewound)
    assert (act.body.batch_id, act.body.kept, act.body.reason) == (1, (), "a test")
    assert act.summary.rewinding_at == act.position
    assert newest.summary.rewinding_at is None
    assert newest.summary.rewound_at == act.position
    assert (newest.summary.next_batch_id, newest.summary.decided_at) == (2, act.body.to)
    found = status_of(world.plan)
    assert (found.health, found.last_batch_id) == ("ok", 1)


def read(world: RewoundWorld, batch: int | None) -> int | None:
    as_of = read_table(world.plan, "lake", None, batch, added=False, counted=False).as_of
    return None if as_of is None else as_of.batch_id


def test_a_reader_sees_the_table_as_of_the_batch(world: RewoundWorld) -> None:
    world.rewind(1)
    assert read(world, None) == 1
    with pytest.raises(Retryable, match="Batch 2 is not published in every account yet"):
        read(world, 2)
    world.go_on(2)
    assert read(world, 2) == 2


def test_a_batch_that_was_taken_back_is_new_with_other_offsets(world: RewoundWorld) -> None:
    world.rewind(1)
    world.go_on(2, 3)
    decided = [entry.body.decision.batch.batch_id for entry in world.entries() if isinstance(entry.body, Decided)]
    assert decided == [3, 2, 3, 2, 1, 0]
    world.rewind(2)
    assert world.batches() == [0, 1, 2]
    world.go_on(3)
    world.rewind(0)
    assert world.batches() == [0]
    assert verify(world.plan).ok


def test_it_says_what_was_not_delivered_or_is_there_already(world: RewoundWorld) -> None:
    with pytest.raises(BatchGap, match="Batch 9 was not delivered: the ledger has decided batches up to 3"):
        world.rewind(9)
    before = world.entries()
    assert not world.rewind(3).needed
    assert world.entries() == before


def test_a_file_that_is_not_where_it_was_published_refuses_it(world: RewoundWorld) -> None:
    """Maintenance may have put its rows elsewhere."""
    gone = world.remove(2)
    before = world.entries()
    asked = world.rewind(1, yes=False)
    assert asked.refused
    with pytest.raises(Refused, match="2 of 4 files to take back are not in account 'a'"):
        world.rewind(1)
    assert world.entries() == before
    assert world.batches() == [0, 1, 2, 3]
    world.accept()
    world.rewind(1)
    assert verify(world.plan).ok
    assert world.entries()[0].summary.removed["lake"]["a"].files == 0
    world.go_on(2, 3)
    assert verify(world.plan).ok
    world.restore(*gone)
    assert not verify(world.plan).ok


def test_a_batch_that_waits_to_be_published_is_no_obstacle(world: RewoundWorld) -> None:
    """An act publishes it first, as every start does."""
    faults.arm("rename.move=error")
    with pytest.raises(PenstockError):
        world.go_on(4)
    faults.arm("")
    asked = world.rewind(2, yes=False)
    assert (asked.newest, asked.refused) == (4, False)
    world.rewind(2)
    assert world.batches() == [0, 1, 2]
    assert verify(world.plan).ok


POINTS = (
    "rewind.sink",
    "rewind.file_unlink",
    "rewind.file_sync",
    "rewind.checkpoint",
    "checkpoint.change",
    "checkpoint.release",
    "rewind.finish",
)


@pytest.mark.parametrize("kind", ["error", "lost"])
@pytest.mark.parametrize("point", POINTS)
def test_what_was_interrupted_is_finished_by_the_same_command_alone(world: RewoundWorld, point: str, kind: str) -> None:
    faults.arm(f"{point}={kind}")
    with pytest.raises(PenstockError):
        world.rewind(1)
    faults.arm("")
    if (point, kind) != ("rewind.finish", "lost"):
        for act in (lambda: recover(world.plan), lambda: world.go_on(2), lambda: world.rewind(2)):
            with pytest.raises(Refused, match="--to-batch 1"):
                act()
        asked = world.rewind(1, yes=False)
        assert (asked.resumed, asked.done, asked.newest) == (True, False, 3)
        assert world.rewind(1).done
    assert world.batches() == [0, 1]
    assert verify(world.plan).ok
    world.go_on(2, 3)
    assert verify(world.plan).ok
    assert world.batches() == [0, 1, 2, 3]
    assert [type(entry.body) for entry in world.entries()].count(Rewound) == 1


def test_a_sink_that_left_the_file_keeps_what_it_has(world: RewoundWorld) -> None:
    both = world.plan
    recover(both)
    world.plan = renamed(both, "other")
    world.rewind(1)
    summary = world.entries()[0].summary
    assert summary.ahead == {"lake": 3}
    assert summary.totals["lake"]["a"].rows == 12
    world.plan = both
    assert world.batches() == [0, 1, 2, 3]
    assert verify(world.plan).ok


def test_a_sink_that_left_the_file_in_the_middle_is_not_passed_over(world: RewoundWorld) -> None:
    """Its rows would stay, and come a second time once it is back."""
    both = world.plan
    faults.arm("rewind.sink=error")
    with pytest.raises(PenstockError):
        world.rewind(1)
    faults.arm("")
    world.plan = renamed(both, "other")
    for yes in (False, True):
        with pytest.raises(
            Refused, match="Sink 'lake' has batches to lose, and the pipeline does not have it any more"
        ) as refused:
            world.rewind(1, yes=yes)
        assert "If it is gone for good, `--keep lake` leaves it with what it has" in refused.value.remedy
    assert world.entries()[0].summary.rewinding_at is not None
    world.plan = both
    assert world.rewind(1).done
    assert world.batches() == [0, 1]
    assert verify(world.plan).ok


@pytest.mark.parametrize("fault", ["", "rewind.keep=error", "rewind.keep=lost", "rewind.checkpoint=error", "rewind.finish=lost"])
def test_a_rewind_whose_sink_is_gone_for_good_ends_without_it(world: RewoundWorld, fault: str) -> None:
    both = world.plan
    faults.arm("rewind.sink=error")
    with pytest.raises(PenstockError):
        world.rewind(1)
    world.plan = renamed(both, "other")
    with pytest.raises(Refused, match="A rewind to batch 1 was begun"):
        world.rewind(1, "other")  # that one loses what it has to lose
    faults.arm(fault)
    if fault:
        with pytest.raises(PenstockError):
            world.rewind(1, "lake")
        faults.arm("")
    if fault != "rewind.finish=lost":
        assert world.rewind(1, "lake").done
    summary = world.entries()[0].summary
    assert (summary.rewinding_at, summary.next_batch_id) == (None, 2)
    assert summary.totals["lake"]["a"].rows == 12
    acts = [entry.body for entry in world.entries() if isinstance(entry.body, Rewound)]
    assert [act.kept for act in acts] == [("lake",), ()]
    found = verify(world.plan)
    assert found.ok, found
    world.plan = both  # what it has is not known, so it takes nothing more
    with pytest.raises(Refused, match="the ledger does not tell which rows it has"):
        world.go_on(2)


def test_a_checkpoint_that_was_set_back_by_hand_does_not_stop_it_half_way(world: RewoundWorld) -> None:
    """The plan of the next batch is gone, which a sink that left the file would need if it came back."""
    for number in (2, 3):
        for log in ("offsets", "commits"):
            (world.checkpoint / log / str(number)).unlink()
    recover(world.plan)
    both, world.plan = world.plan, renamed(world.plan, "other")
    before = world.entries()
    with pytest.raises(Refused, match="offsets/2 is missing"):
        rewind_keeping(world, both)
    assert world.entries() == before
    faults.arm("rewind.checkpoint=error")
    with pytest.raises(PenstockError):
        world.rewind(1)
    faults.arm("")
    assert not world.rewind(1, yes=False).done
    assert world.rewind(1).done
    assert world.entries()[0].summary.rewinding_at is None


@pytest.mark.parametrize(
    ("place", "content", "error"),
    [
        ("metadata", '{"id":"5f0c9f0e-0000-4000-8000-000000000002"}', CheckpointReplaced),
        ("offsets/1", 'v1\n{}\n{"t":{"0":7}}', OffsetsConflict),
    ],
)
def test_another_checkpoint_refuses_it(world: RewoundWorld, place: str, content: str, error: type[PenstockError]) -> None:
    """It would be set back, and no start would go on with it; the rows would be gone from the sinks."""
    (world.checkpoint / place).write_text(content)
    before = world.entries()
    for yes in (False, True):
        with pytest.raises(error):
            world.rewind(1, yes=yes)
    assert world.entries() == before
    assert world.batches() == [0, 1, 2, 3]


def test_the_checkpoint_is_not_brought_back_alone(world: RewoundWorld) -> None:
    """It would be ahead of the ledger, which says how to go on without the batches that were taken back."""
    world.rewind(1)
    with pytest.raises(Refused, match="no rewind") as refused:
        undo_act(world.plan, verb="rewind", yes=True)
    assert "It is a part of a `penstock rewind`, and stays" in refused.value.remedy
    assert world.numbers("commits") == [0, 1]


def test_what_a_quarantine_that_is_ahead_has_of_a_batch_is_told_by_the_earlier_decision(world: RewoundWorld) -> None:
    """Else a batch of a query with state that is repeated would not seem to be what was decided."""
    world.rewind(1, "lake")
    world.go_on(2)
    [newest, *_] = (entry for entry in world.entries() if isinstance(entry.body, Decided))
    assert not decision_in(newest).staged
    again = Delivered(batch=decision_in(newest).batch, rows_in=5, already=True, sinks={})
    with closing(assemble(world.plan)) as runtime:
        stager = BatchStager(runtime, None, pause=lambda _: None)
        assert stager._put_aside(again, SinkName("lake")) == 5
        assert stager._put_aside(again, SinkName("other")) == 0


def rewind_keeping(world: RewoundWorld, plan: DeliveryPlan) -> None:
    other, world.plan = world.plan, plan
    try:
        world.rewind(1, "lake")
    finally:
        world.plan = other


def renamed(plan: DeliveryPlan, name: str) -> DeliveryPlan:
    """The same file with an account elsewhere, of a sink of another name."""
    sink = penstock.Parquet(accounts={"a": Path(plan.settings.home) / "elsewhere"})
    return penstock.Delivery("flights", home=plan.settings.home, sinks={name: sink}).plan


def test_pipelines_are_compared_by_what_stands(world: RewoundWorld, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = RewoundWorld(tmp_path_factory.mktemp("other")).go_on(0, 1, 2, 3)
    world.rewind(1)
    found = compare(world.plan, other.plan, from_batch=None, pairs=(), show_rows=0)
    assert (found.same, found.from_batch, found.to_batch) == (True, 0, 1)
