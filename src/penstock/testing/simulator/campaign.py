"""Campaigns: many schedules, run on several processors, and their result."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import partial
from itertools import chain
from time import perf_counter

from penstock.testing.simulator.explore import interleavings, seconds, singles, worlds
from penstock.testing.simulator.schedule import Schedule, draw
from penstock.testing.simulator.simulation import run

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
