"""A backfill beside a driver that runs, on a real ledger and real accounts, without Spark: both killed at every step."""

import os
import random
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from tests.killed import KilledError, is_killed_by
from tests.seed import SEED
from tests.unit.backfill_beside import LATER, STEPS, Driver, Race, World

from penstock.commit.backfill import lacking_batches
from penstock.commit.beside import BesideCoordinator, is_apart_or_absent
from penstock.commit.publication import decision_in, sinks_apart
from penstock.core.backfill import BackfillOpened
from penstock.core.model import BatchId, Decision, Generation, new_nonce
from penstock.errors import Fenced, Refused, Retryable
from penstock.run.assembly import assemble, ledger_of
from penstock.run.operations import recover, sweep
from penstock.run.rewind import rewind
from penstock.run.runtime import coordinator_of
from penstock.run.status import status_of

pytestmark = pytest.mark.usefixtures("kills_raise")


def test_the_driver_goes_on_without_the_sink_and_a_run_that_has_it_lets_it_join(tmp_path: Path) -> None:
    world = World(tmp_path)
    drivers = [world.driver("lake", batches=3)]

    def meanwhile(number: int) -> None:
        if number == 1:
            drivers[0].go_on()  # the file that it began with lacks the sink
            drivers[0].end()
            drivers.append(world.driver("lake", "later"))
        if number in {2, 3}:
            drivers[-1].go_on()
            assert "later" not in {piece.sink for piece in newest_decision(world).staged}

    given = world.backfill(meanwhile)
    assert (len(given.batches), given.joined) == (6, True)
    drivers[-1].go_on()
    world.require_exact()
    assert drivers[-1].staged == 4  # the batch that met the end of the backfill, twice
    assert world.kinds().count("opened") == 2  # nobody was fenced
    drivers[-1].end()
    with closing(ledger_of(world.both)) as ledger:
        tail = ledger.tail()
    assert tail is not None
    assert not sinks_apart(tail.summary)
    again = world.driver("lake", "later", batches=1)
    world.require_exact()
    again.end()
    assert not [*world.root.rglob("*.staged")]


def newest_decision(world: World) -> Decision:
    with closing(ledger_of(world.both)) as ledger:
        return next(decision_in(entry) for entry in ledger.newest_first() if hasattr(entry.body, "decision"))


def test_a_batch_that_was_staged_before_the_sink_joined_is_staged_again(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.driver("lake", batches=2).end()
    with pytest.raises(KilledError):
        world.backfill(killed_at(1))
    driver = world.driver("lake", "later")
    driver.go_on(meanwhile=world.backfill)
    assert driver.staged == 2
    world.require_exact()
    driver.end()


def killed_at(batch: int) -> Callable[[int], None]:
    def each(number: int) -> None:
        if number == batch:
            raise KilledError

    return each


def test_where_no_run_has_the_sink_it_joins_the_next_one_unless_that_has_new_batches(tmp_path: Path) -> None:
    world = World(tmp_path)
    former = world.driver("lake", batches=2)
    assert not world.backfill().joined
    world.require_exact()  # readers see it, though it has not joined
    former.go_on()
    former.end()
    status = status_of(world.both)
    assert status.health != "conflict"
    assert "runs without sink 'later'" in status.text
    without = world.driver("lake", "later", batches=1)
    assert world.rows("later") == Counter(range(2))
    assert world.backfill().joined
    without.go_on()
    world.require_exact()
    without.end()
    level = World(tmp_path / "level")
    level.driver("lake", batches=2).end()
    level.backfill()
    assert level.driver("lake", "later", batches=1).staged == 1
    level.require_exact()


def test_the_batches_before_the_chosen_one_are_left_out(tmp_path: Path) -> None:
    world = World(tmp_path)
    driver = world.driver("lake", batches=3)
    world.backfill(lambda _: driver.go_on() if world.batches < 5 else None, from_batch=1)
    driver.end()
    world.driver("lake", "later", batches=1)
    world.require_exact(since=1)


def test_a_newer_backfill_fences_an_older_one(tmp_path: Path) -> None:
    world = World(tmp_path)
    driver = world.driver("lake", batches=2)
    with pytest.raises(Fenced, match="Another backfill of sink 'later' has begun since"):
        world.backfill(lambda number: world.backfill() if number == 1 else None)
    driver.go_on()
    driver.end()
    world.driver("lake", "later").end()
    world.backfill()
    world.require_exact()


def test_a_rewind_beside_it_takes_nothing_from_the_sink_and_fences_it(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.driver("lake", batches=4).end()

    def rewound(number: int) -> None:
        if number == 0:
            rewind(world.plan("lake"), to_batch=BatchId(2), keep=(), reason="a test", yes=True)

    with pytest.raises(Fenced, match="was rewound"):
        world.backfill(rewound)
    world.batches = 3
    world.backfill()
    with pytest.raises(Refused, match="'later' was given earlier batches"):
        rewind(world.plan("lake"), to_batch=BatchId(1), keep=(), reason="a test", yes=True)
    world.driver("lake", "later", batches=2)
    world.require_exact()


def test_a_run_with_the_sink_that_was_started_first_is_not_left_without_it(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.driver("lake", batches=1).end()
    runtime = assemble(world.both)
    with closing(runtime):
        started = world.driver("lake", "later", batches=1)
        assert not is_apart_or_absent(runtime.ledger, LATER)
        coordinator = coordinator_of(runtime, of=BesideCoordinator)
        assert isinstance(coordinator, BesideCoordinator)
        opened = BackfillOpened(sink=LATER, writer=new_nonce(), owner="a test")
        with pytest.raises(Retryable, match="A run was started at the same moment"):
            coordinator.open_beside(
                opened, generation=Generation(1), first=lacking_batches(runtime.ledger, LATER, from_batch=None).begins
            )
        started.end()


def test_a_sweep_beside_it_takes_nothing_that_may_be_decided(tmp_path: Path) -> None:
    """What it stages is of an old batch in an old generation, as only garbage is elsewhere."""
    world = World(tmp_path)
    world.driver("lake", batches=3).end()
    drivers: list[Driver] = []

    def swept(number: int) -> None:
        if number == 1:
            drivers.append(world.driver("lake", "later", batches=1))
        assert not [name for name in sweep(world.both, dry_run=False) if "later" in name]

    world.backfill(swept)
    drivers[0].go_on()
    world.require_exact()
    drivers[0].end()


def test_a_run_that_has_no_other_sink_waits_for_the_backfill(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.driver("lake", batches=2).end()
    with pytest.raises(KilledError):
        world.backfill(killed_at(1))
    recover(world.plan("lake"))
    with pytest.raises(Refused, match="begun and not ended"):
        world.driver("later")
    world.backfill()
    world.driver("later", batches=1).end()
    assert world.rows("later") == Counter(range(3))


def test_a_backfill_that_is_killed_beside_the_driver_is_finished_by_the_next(tmp_path: Path) -> None:
    reached, began = set[str](), World(tmp_path / "began")
    began.driver("lake", batches=2).end()
    for fault in (f"{point}=kill@{occurrence}" for point in STEPS for occurrence in (1, 2)):
        world = began.copied(tmp_path / fault)
        if is_killed_by(fault, world.backfill):
            reached.add(fault.partition("=")[0])
            begun = "backfill_opened" in world.kinds()
            driver = world.driver("lake", *(["later"] if begun else []), batches=1)
            sweep(world.both, dry_run=False)
            world.backfill()
            if not begun:
                driver = world.driver("lake", "later")
            driver.go_on()
            world.require_exact()
            driver.end()
            world.driver("lake", "later").end()
            assert not [*world.root.rglob("*.staged")]
    assert reached == {*STEPS}


def test_a_driver_that_is_killed_while_the_sink_joins_loses_nothing(tmp_path: Path) -> None:
    reached, began = set[str](), World(tmp_path / "began")
    began.driver("lake", batches=1).end()
    assert is_killed_by("rename.move=kill", began.backfill)  # decided, not published
    for fault in (*(f"{point}=kill" for point in STEPS), "ledger.sqlite_commit=kill@2", "ledger.sqlite_commit=kill@3"):
        world = began.copied(tmp_path / fault)
        if is_killed_by(fault, partial(world.driver, "lake", "later", batches=1)):
            reached.add(fault.partition("=")[0])
            world.count()
            world.driver("lake", "later", batches=1).end()
            world.require_exact()
    assert reached == {*STEPS}


@pytest.mark.campaign
@pytest.mark.timeout(0)
def test_any_order_of_steps_and_kills_is_exact(tmp_path: Path) -> None:
    """CI runs two short ones; `make soak` runs 300. PENSTOCK_SEED replays them."""
    orders, steps = (300, 30) if os.environ.get("PENSTOCK_SOAK_FAULTS") == "all" else (2, 14)
    for seed in range(SEED, SEED + orders):
        print(f"PENSTOCK_SEED={seed}")
        Race(World(tmp_path / str(seed)), random.Random(seed)).run(steps=steps)
