"""How fast the simulator of the protocol is: random schedules on one processor, and the steps that they take."""

import time
from collections.abc import Iterator

from bench.measuring import Bench
from bench.result import Case, Table
from penstock.testing.simulator.schedule import draw
from penstock.testing.simulator.simulation import run

SCHEDULES = 400


def measure(bench: Bench) -> Iterator[Table]:
    """The same schedules in every round."""
    schedules = bench.sized(SCHEDULES, 10)
    steps = sum(run(draw(seed)).steps for seed in range(schedules))
    took = bench.in_rounds({"simulator": schedules}, lambda _, count: _seconds(count))["simulator"]
    yield Table(
        name="simulator",
        title=f"The simulator of the protocol: {SCHEDULES:,} random schedules on one processor",
        unit="s",
        cases=(
            Case(name="schedules", figures={"simulator": took}, amount=schedules),
            Case(name="steps", figures={"simulator": took}, amount=steps),
        ),
        ours=("simulator",),
        comparison="alone",
        amounts="schedules or steps",
        note="A schedule is one simulated life of a pipeline: several drivers, a few batches, faults and restarts, until "
        "everything is delivered and every invariant was checked. A step is one operation on a store, where a fault can strike "
        "or another driver take its turn. Both are counted per second of wall clock.",
    )


def _seconds(schedules: int) -> float:
    """Raises ViolationError where an invariant does not hold."""
    started = time.perf_counter()
    for seed in range(schedules):
        run(draw(seed))
    return time.perf_counter() - started
