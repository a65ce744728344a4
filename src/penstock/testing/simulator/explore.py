"""Enumeration of all schedules of a kind: single faults, ordered pairs, and two drivers interleaved at every step."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from penstock.testing.simulator.schedule import SMALL, Fault, Kind, Schedule, Shape
from penstock.testing.simulator.simulation import Outcome, run

LASTING: dict[Kind, tuple[int | None, ...]] = {Kind.STALL: (1, 12, 40, None), Kind.OUTAGE: (5, 12)}
"""How many steps faults last when every step is tried. A stall lasts a moment, into the recovery, into the next batch, or to the
end. An outage outlasts the tries of one operation, or of all.
"""
SECONDLY: dict[Kind, tuple[int | None, ...]] = {Kind.STALL: (12, None), Kind.OUTAGE: (5,)}
"""How many steps the second fault of a pair lasts."""


_SOON = 0.1
WORLDS = ((False, False), (True, False), (False, True))
"""Worlds in which every fault is tried: whether commits are lost, and whether each batch is published beside the next one."""


def shape(*, lose_commits: bool, behind: bool = False) -> Shape:
    """Return the world for enumerated faults. With `lose_commits`, every start replays the newest committed batch."""
    return replace(SMALL, lose_commit=1.0 if lose_commits else 0.0, behind=_SOON if behind else 0.0)


def worlds() -> tuple[Shape, ...]:
    """Return the shapes of WORLDS."""
    return tuple(shape(lose_commits=lose, behind=behind) for lose, behind in WORLDS)


def faults_at(step: int, lasting: Mapping[Kind, tuple[int | None, ...]]) -> Iterator[Fault]:
    """Yield every fault at one step."""
    return (Fault(step, kind, steps) for kind in Kind for steps in lasting.get(kind, (None,)))


def singles(world: Shape, *, seed: int = 0) -> Iterator[Schedule]:
    """Yield every single fault."""
    undisturbed = run(Schedule(seed, world))
    for step in range(1, undisturbed.steps + 1):
        for fault in faults_at(step, LASTING):
            yield Schedule(seed, world, (fault,))


def seconds(first: Schedule, outcome: Outcome) -> Iterator[Schedule]:
    """Yield every second fault after that of `first`, whose run gave `outcome`: mostly during the recovery from it."""
    (fault,) = first.faults
    for step in range(fault.step + 1, outcome.steps + 1):
        for second in faults_at(step, SECONDLY):
            yield Schedule(first.seed, first.shape, (fault, second))


def interleavings(world: Shape, *, seed: int = 0) -> Iterator[Schedule]:
    """Let one driver stop at any step, another one take any number of steps, and the first one then continue to its end."""
    undisturbed = run(Schedule(seed, world))
    for step in range(1, undisturbed.steps + 1):
        alone = run(Schedule(seed, world, (Fault(step, Kind.STALL),)))
        for steps in range(1, alone.steps - step + 1):
            yield Schedule(seed, world, (Fault(step, Kind.STALL, steps),))
