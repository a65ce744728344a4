"""Savepoints and rewinds of one pipeline: which savepoint still stands, and what a refusal tells to do."""

from pathlib import Path

import pytest
from tests.unit import rewound_world
from tests.unit.rewound_world import RewoundWorld

import penstock
from penstock.core import faults
from penstock.core.model import SinkName
from penstock.errors import Failed, LedgerMismatch, PenstockError, Refused
from penstock.run.operations import verify
from penstock.run.rewind import Rewind
from penstock.run.savepoints import check, create, place_of, remove, restore

delivered, world = rewound_world.delivered, rewound_world.world


def put_back(world: RewoundWorld, name: str) -> Rewind:
    return restore(world.plan, name, place_of(world.plan, to=None, options=None), reason="", yes=True)


def test_a_savepoint_of_a_batch_that_was_taken_back_is_none_any_more(world: RewoundWorld) -> None:
    place = place_of(world.plan, to=None, options=None)
    create(world.plan, "late", place)
    assert check(world.plan, "late", place).ok
    world.rewind(1)
    create(world.plan, "early", place)
    for _ in range(2):
        assert check(world.plan, "late", place).problems == ("batch 3 was taken back since",)
        with pytest.raises(LedgerMismatch, match="Savepoint 'late' cannot be restored: batch 3 was taken back since"):
            put_back(world, "late")
        assert check(world.plan, "early", place).ok
        world.go_on(2, 3)
    assert put_back(world, "early").done
    assert world.batches() == [0, 1]
    assert verify(world.plan).ok


def test_a_place_that_cannot_be_made_is_told(world: RewoundWorld, tmp_path: Path) -> None:
    """As on a file system that is read-only."""
    (tmp_path / "file").touch()
    with pytest.raises(Failed, match=r"file/points could not be created: a file is where a directory is expected\."):
        create(world.plan, "late", place_of(world.plan, to=str(tmp_path / "file/points"), options=None))


def test_as_many_files_are_deleted_as_were_said(world: RewoundWorld) -> None:
    place = place_of(world.plan, to=None, options=None)
    create(world.plan, "late", place)
    asked = remove("late", place, yes=False)
    assert remove("late", place, yes=True) == asked > 0


def test_a_sink_that_is_ahead_is_taken_out_of_the_file_for_it(world: RewoundWorld) -> None:
    """There is no `--keep` there: the plan of the next batch is not in a savepoint."""
    world.rewind(1, "lake")
    create(world.plan, "early", place_of(world.plan, to=None, options=None))
    with pytest.raises(Refused) as refused:
        put_back(world, "early")
    assert refused.value.remedy.startswith("Run `penstock recover`, then take such a sink out of the pipeline file")


def test_what_was_interrupted_in_the_checkpoint_names_the_command_that_finishes_it(world: RewoundWorld) -> None:
    create(world.plan, "late", place_of(world.plan, to=None, options=None))
    world.go_on(4)
    faults.arm("checkpoint.change=error")
    with pytest.raises(PenstockError):
        put_back(world, "late")
    faults.arm("")
    for act in (lambda: world.rewind(3), lambda: world.go_on(4)):
        with pytest.raises(Refused) as refused:
            act()
        assert "`penstock savepoint restore" in refused.value.remedy
    assert put_back(world, "late").done
    assert verify(world.plan).ok


def test_a_restore_whose_sink_is_gone_for_good_ends_without_it(world: RewoundWorld) -> None:
    place = place_of(world.plan, to=None, options=None)
    create(world.plan, "late", place)
    world.go_on(4)
    faults.arm("rewind.sink=error")
    with pytest.raises(PenstockError):
        put_back(world, "late")
    faults.arm("")
    other = penstock.Parquet(accounts={"a": world.root / "elsewhere"})
    world.plan = penstock.Delivery("flights", home=world.plan.settings.home, sinks={"other": other}).plan
    with pytest.raises(Refused, match="Sink 'lake' has batches to lose") as refused:
        put_back(world, "late")
    assert "`--keep lake` leaves it" in refused.value.remedy
    assert restore(world.plan, "late", place, reason="it is gone", yes=True, keep=[SinkName("lake")]).done
    assert verify(world.plan).ok
    with pytest.raises(Refused, match="the plan of the next batch is not in a savepoint"):
        restore(world.plan, "late", place, reason="", yes=True, keep=[SinkName("other")])
