"""All schedules of a kind (single faults, ordered pairs, two drivers interleaved at every step), and campaigns of them."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from time import perf_counter

from penstock.testing.simulator.schedule import SMALL, Fault, Kind, Schedule, Shape, draw
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


CHUNK = 250

Work = Callable[[], int]


@dataclass(frozen=True, slots=True)
class Result:
    """How many schedules passed, and how long they took."""

    schedules: int
    took_s: float

    @property
    def per_minute(self) -> float:
        return self.schedules / self.took_s * 60


def conduct(work: Iterable[Work], *, processes: int) -> Result:
    """Do all `work`. Raises the first ViolationError, which holds the command that replays it."""
    started = perf_counter()
    with ProcessPoolExecutor(processes) as pool:
        running = [pool.submit(part) for part in work]
        try:
            done = sum(part.result() for part in as_completed(running))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return Result(done, perf_counter() - started)


def random_work(*, first_seed: int, schedules: int) -> Iterator[Work]:
    """Return work on random schedules of consecutive seeds."""
    end = first_seed + schedules
    return (partial(_run_seeds, seed, min(seed + CHUNK, end)) for seed in range(first_seed, end, CHUNK))


def single_work() -> Iterator[Work]:
    """Return work on every single fault, in every world."""
    return _chunks(chain.from_iterable(map(singles, worlds())))


def interleaving_work() -> Iterator[Work]:
    """Return work on two drivers, interleaved at every step, in every world."""
    return _chunks(chain.from_iterable(map(interleavings, worlds())))


def pair_work() -> Iterator[Work]:
    """Return work on every ordered pair of faults, in every world."""
    firsts = chain.from_iterable(map(singles, worlds()))
    return (partial(_run_pairs, first) for first in firsts)


def _chunks(schedules: Iterator[Schedule]) -> Iterator[Work]:
    every = list(schedules)
    return (partial(_run_all, tuple(every[start : start + CHUNK])) for start in range(0, len(every), CHUNK))


def _run_seeds(start: int, end: int) -> int:
    return _run_all(map(draw, range(start, end)))


def _run_pairs(first: Schedule) -> int:
    return 1 + _run_all(seconds(first, run(first)))


def _run_all(schedules: Iterable[Schedule]) -> int:
    return sum(1 for _ in map(run, schedules))
