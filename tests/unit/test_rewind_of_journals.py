"""A rewind of a pipeline that reads journals: what its reader released since is needed once more."""

import json
from contextlib import closing
from pathlib import Path

import pytest
from tests.unit.removed_world import Run
from tests.unit.rewound_world import RewoundWorld
from tests.unit.test_journal_source import STORAGE, id_of, numbers, push, remove_released

import penstock
from penstock.commit.publication import decision_in
from penstock.core import faults
from penstock.core.model import Decided, SourceName
from penstock.errors import InputLost, PenstockError, Refused
from penstock.journal.readers import registration_of
from penstock.journal.reading import JournalReader
from penstock.run.assembly import DeliveryPlan, assemble
from penstock.run.open_delivery import OpenDelivery
from penstock.run.runtime import opened_by_this_process
from penstock.source.journal.journals import Journals
from penstock.source.journal.settings import JournalSettings
from penstock.source.journal.stream import JournalStream
from penstock.spec.load import load

READER = "flights/web"
FILE = """\
pipeline: flights
home: ./home
sources:
  web: {format: journal, path: "./journals/*"}
sinks:
  lake: {type: parquet, accounts: {a: ./lake/a, b: ./lake/b}, route: {column: place}, unrouted: fail, partition_by: [place]}
"""


class PushedWorld(RewoundWorld):
    """A `RewoundWorld` whose batches read 10 events of journal `a`, and from batch 2 on 10 of journal `b`, too."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        file = root / "flights.yaml"
        file.write_text(FILE)
        self.plan: DeliveryPlan = penstock.Pipeline(load(str(file))).plan
        push(root / "journals" / "a", *numbers(40))
        push(root / "journals" / "b", *numbers(20))
        JournalStream(self.settings(), STORAGE, now_us=lambda: 1).begin()

    def settings(self) -> JournalSettings:
        return JournalSettings(name="web", reader=READER, pattern=str(self.root / "journals" / "*"))

    def journal(self, name: str) -> Path:
        return self.root / "journals" / name

    def deliver(self) -> "PushedWorld":
        run = Run(self.plan, self.checkpoint)
        run.write("metadata", '{"id":"5f0c9f0e-0000-4000-8000-000000000001"}')
        with closing(run.runtime):
            for number in range(4):
                end = {id_of(self.journal("a")): [0, 10 * (number + 1)]}
                end |= {id_of(self.journal("b")): [0, 10 * (number - 1)]} if number > 1 else {}
                run.write(f"offsets/{number}", f"v1\n{{}}\n{json.dumps(end)}")
                run.deliver(number)
                run.write(f"commits/{number}", "v1\n{}")
        Journals({SourceName("web"): self.settings()}).release({SourceName("web"): json.dumps(end)})
        return self

    def next(self, name: str) -> int:
        known = registration_of(STORAGE, self.journal(name), READER)
        assert known is not None
        return known.next


@pytest.fixture
def world(tmp_path: Path) -> PushedWorld:
    return PushedWorld(tmp_path).deliver()


def test_what_is_needed_once_more_is_kept_in_the_journals(world: PushedWorld) -> None:
    """Else a receiver removes it before the next start: rows would be gone from the sinks and from their source."""
    assert (world.next("a"), world.next("b")) == (40, 20)
    assert not world.rewind(1, yes=False).refused
    assert (world.next("a"), world.next("b")) == (40, 20)
    assert world.rewind(1).done
    assert (world.next("a"), world.next("b")) == (20, 0)
    assert [remove_released(world.journal(name)) > 0 for name in "ab"] == [True, False]


def test_a_run_that_slept_releases_nothing(world: PushedWorld) -> None:
    older = OpenDelivery(assemble(world.plan))
    older.coordinator.open(opened_by_this_process(older._runtime))
    newest = decision_in(next(entry for entry in world.entries() if isinstance(entry.body, Decided))).batch
    world.rewind(1)
    [warning] = older._release(newest)
    assert "Nothing is released in the journals: This run is generation 2" in warning
    assert (world.next("a"), world.next("b")) == (20, 0)
    older.release()


def test_a_journal_that_came_after_the_batch_is_read_from_where_it_began(world: PushedWorld) -> None:
    """No offset tells of it any more: a reader begins where it is registered."""
    world.rewind(1)
    reader = JournalStream(world.settings(), STORAGE, now_us=lambda: 1)
    end = reader.advance({id_of(world.journal("a")): [0, 20]})
    assert end[id_of(world.journal("b"))] == [0, 20]


@pytest.mark.parametrize(("name", "what"), [("a", "events 20 to"), ("b", "events 0 to")])
def test_events_that_are_gone_refuse_it(world: PushedWorld, name: str, what: str) -> None:
    remove_released(world.journal(name))
    assert world.rewind(1, yes=False).refused
    with pytest.raises(Refused, match=f"could not be done again: gone are .*{what}"):
        world.rewind(1)
    assert world.batches() == [0, 1, 2, 3]


def test_a_journal_that_is_not_there_refuses_it(world: PushedWorld) -> None:
    world.journal("b").rename(world.root / "elsewhere")
    with pytest.raises(Refused, match=r"could not be done again: gone are the journal \w+, which is not at"):
        world.rewind(1)
    assert world.batches() == [0, 1, 2, 3]


class TestForks:
    """A second pipeline that goes on from a savepoint is a reader of the journals from the fork on."""

    @pytest.fixture
    def other(self, world: PushedWorld) -> penstock.Pipeline:
        (world.root / "shadow.yaml").write_text(
            FILE.replace("pipeline: flights", "pipeline: shadow").replace("./home", "./shadow").replace("./lake", "./shadow/lake")
        )
        penstock.Pipeline.from_file(world.root / "flights.yaml").create_savepoint("a")
        return penstock.Pipeline.from_file(world.root / "shadow.yaml")

    def fork(self, world: PushedWorld, other: penstock.Pipeline, *, yes: bool = True) -> None:
        penstock.Pipeline.from_file(world.root / "flights.yaml").fork("a", other, yes=yes)

    def release(self, world: PushedWorld) -> None:
        """The first pipeline needs nothing of journal `a` any more."""
        everything = json.dumps({id_of(world.journal("a")): [0, 80]})
        Journals({SourceName("web"): world.settings()}).release({SourceName("web"): everything})

    def test_what_it_reads_first_stays_from_then_on(self, world: PushedWorld, other: penstock.Pipeline) -> None:
        push(world.journal("a"), *numbers(40))
        push(world.journal("c"), *numbers(20))
        self.fork(world, other, yes=False)
        assert registration_of(STORAGE, world.journal("a"), "shadow/web") is None
        faults.arm("savepoint.hold=lost")
        with pytest.raises(PenstockError):
            self.fork(world, other)
        faults.arm("")
        for _ in range(2):
            self.fork(world, other)
            known = [registration_of(STORAGE, world.journal(name), "shadow/web") for name in "abc"]
            assert [None if each is None else each.next for each in known] == [40, 20, 0]
        self.release(world)
        assert remove_released(world.journal("a")) > 0
        extent = JournalReader(STORAGE, world.journal("a")).extent()
        assert extent is not None
        assert extent.first <= 40

    def test_events_that_are_gone_refuse_it(self, world: PushedWorld, other: penstock.Pipeline) -> None:
        push(world.journal("a"), *numbers(40))
        self.release(world)
        remove_released(world.journal("a"))
        for yes in (False, True):
            with pytest.raises(InputLost, match="cannot go on behind batch 3: gone are events 40 to"):
                self.fork(world, other, yes=yes)
        assert registration_of(STORAGE, world.journal("a"), "shadow/web") is None

    def test_places_that_a_lost_ledger_filled_refuse_it_without_yes_too(
        self, world: PushedWorld, other: penstock.Pipeline
    ) -> None:
        self.fork(world, other)
        checkpoint = world.root / "shadow" / "checkpoint"
        of_fork = (checkpoint / "metadata").read_text()
        run = Run(other.plan, checkpoint)
        run.write("metadata", of_fork)
        with closing(run.runtime):
            run.write("offsets/4", f"v1\n{{}}\n{json.dumps({id_of(world.journal('a')): [0, 40]})}")
            run.deliver(4)
        (world.root / "shadow").rename(world.root / "lost")
        (world.root / "shadow").mkdir()
        (world.root / "lost" / "lake").rename(world.root / "shadow" / "lake")
        for yes in (False, True):
            with pytest.raises(Refused, match="another ledger, or an older copy, is in its place"):
                self.fork(world, other, yes=yes)
