"""Every verb that acts, killed at random moments and at each fault point that it reaches, then resumed or undone: exact.

CI kills one verb twice; `make soak` kills each 30 times at random and once at each point. PENSTOCK_SEED replays what was drawn.
"""

import os
import random
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.crash import shared_java
from tests.crash.acting import Actor, Undisturbed, acting, is_killed, printed, undisturbed
from tests.crash.commandline import penstock
from tests.crash.verbs import FILES, ROWS, VERBS, Verb, nothing
from tests.crash.world import World, make_world
from tests.memory import held_directory, in_memory
from tests.seed import SEED

EVERYTHING = os.environ.get("PENSTOCK_SOAK_FAULTS") == "all"
KILLS = 30 if EVERYTHING else 2
ENDS = 0.15
"""How often the next start after a kill is left alone."""

CHOSEN = list(VERBS) if EVERYTHING else random.Random(SEED).sample(list(VERBS), 1)

pytestmark = [pytest.mark.crash, pytest.mark.spark, pytest.mark.campaign, pytest.mark.timeout(3600)]


@dataclass(frozen=True)
class Stage:
    """A world as a verb finds it, to begin from again and again; with how long the verb takes, and what it reaches."""

    world: World
    verb: Verb
    actor: Actor
    copy: Path

    def begin(self) -> World:
        """Where it was: input files are known by their paths and times."""
        shutil.rmtree(self.world.root)
        shutil.copytree(self.copy, self.world.root)
        return replace(self.world, expected={name: Counter(rows) for name, rows in self.world.expected.items()})

    def act(self, world: World, *, faults: str = "", killed_after_s: float | None = None) -> int:
        """Give the verb's command in a process of its own, which may be killed; its exit code."""
        java = shared_java.environment() if self.verb.starts_spark else {}
        environment = {"PENSTOCK_FAULTS": faults, **java}
        code = self.actor.run(self.verb.words, directory=world.root, environment=environment, killed_after_s=killed_after_s)
        if self.verb.starts_spark:
            shared_java.end_application()
        return code


@pytest.fixture(scope="module", name="actor")
def _actor() -> Iterator[Actor]:
    with acting() as actor:
        yield actor


@pytest.fixture(scope="module", name="delivered")
def _delivered(spark: SparkSession, actor: Actor) -> Iterator[Stage]:
    with held_directory(parent=in_memory()) as directory:
        world = make_world(directory / "world", files=FILES, rows_per_file=ROWS, seed=SEED, per_trigger=1)
        world.rewrite(("    table: flights\n", "    table: flights\n    batch_column: written_by\n"))
        assert world.run_with("").code == 0
        yield Stage(world, Verb((), nothing), actor, Path(shutil.copytree(world.root, directory / "delivered")))


def staged(delivered: Stage, verb: Verb) -> Stage:
    """A world that is prepared for the verb."""
    world = delivered.begin()
    verb.prepare(world)
    copy = delivered.copy.with_name("prepared")
    shutil.rmtree(copy, ignore_errors=True)
    return Stage(world, verb, delivered.actor, Path(shutil.copytree(world.root, copy)))


def usual(stage: Stage) -> Undisturbed:
    """The verb when nobody disturbs it."""
    world = stage.begin()
    assert stage.act(world) == 0, printed(world.root)
    return undisturbed(world.root)


def kill_once(stage: Stage, world: World, known: Undisturbed, generator: random.Random) -> bool:
    """Kill the verb at a random moment, in two of three cases not before its first fault point; False if it was done before."""
    begin_s = known.first_s if generator.random() < 2 / 3 else 0
    return is_killed(stage.act(world, killed_after_s=generator.uniform(begin_s, known.all_s)))


def is_struck(code: int, point: str) -> bool:
    """Return whether a kill at that point came. One in a task kills Spark's worker, and the verb ends with what Spark says."""
    return is_killed(code) or (point.startswith("stage.") and code != 0)


def settle(world: World, verb: Verb, generator: random.Random) -> str:
    """Undo what was interrupted, or resume it; then the pipeline goes on."""
    how = undone(world, verb) if verb.undo and generator.random() < 0.5 else ""
    again = penstock(*verb.words, directory=world.root)
    if again.code:
        assert verb.is_done, str(again)
        assert verb.is_done in " ".join(again.err.split()), str(again)
        how = "done before"
    verb.goes_on(world)
    return how or "resumed"


def undone(world: World, verb: Verb) -> str:
    """Before the first change there is nothing to undo."""
    taken_back = penstock(*verb.undo, directory=world.root)
    if taken_back.code:
        assert "can be undone" in taken_back.err, str(taken_back)
        return "nothing to undo"
    return "undone"


@pytest.mark.parametrize("name", CHOSEN)
def test_killed_at_random_moments_it_is_resumed_or_undone(delivered: Stage, name: str) -> None:
    verb, generator = VERBS[name], random.Random(f"{SEED} {name}")
    stage = staged(delivered, verb)
    known, kills, settled = usual(stage), 0, Counter[str]()
    while kills < KILLS:
        world = stage.begin()
        while kills < KILLS and kill_once(stage, world, known, generator):
            kills += 1
            if generator.random() < ENDS:
                break
        settled[settle(world, verb, generator)] += 1
    print(f"PENSTOCK_SEED={SEED} {name}: {kills} kills within {known.all_s:.2f} s, {dict(settled)}")


@pytest.mark.parametrize("name", CHOSEN)
def test_killed_at_each_fault_point_it_is_resumed_or_undone(delivered: Stage, name: str) -> None:
    """One point after the other, in what the last kill left; where that does not reach the point any more, from the beginning.

    CI draws one: each verb has a test of its own that kills it at all of them.
    """
    verb, generator = VERBS[name], random.Random(f"{SEED} {name} points")
    stage = staged(delivered, verb)
    reached, settled = usual(stage).reached, Counter[str]()
    world = stage.begin()
    points = [*reached] if EVERYTHING else generator.sample([*reached], min(len(reached), 1))
    for point in points:
        fault = f"{point}=kill@{generator.randint(1, reached[point])}"
        if not is_struck(stage.act(world, faults=fault), point):
            settled[settle(world, verb, generator)] += 1
            world = stage.begin()
            assert is_struck(stage.act(world, faults=fault), point), f"{fault} was not reached: {printed(world.root)}"
    settled[settle(world, verb, generator)] += 1
    print(f"PENSTOCK_SEED={SEED} {name}: killed at {', '.join(points)}; {dict(settled)}")
