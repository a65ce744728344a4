"""Drivers of one table that are killed at random moments, while others change it. PENSTOCK_SEED replays the printed seed."""

import random
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from tests.conformance.killed_driver import Driver, decided_upto
from tests.conformance.lake_rig import LakeRig
from tests.seed import SEED

from penstock.testing.conformance import require_equal
from penstock.testing.conformance.story import RAISED, live, rows_of, verify

BATCHES = 3
RIVALS_ONE_IN = 3
"""How often a second driver delivers the same batches at the same time."""


def require_exact(
    rig: LakeRig,
    acts: Sequence[Callable[[], object]],
    *,
    kills: int,
    longest_s: float,
    every_s: float,
    fails: tuple[type[Exception], ...],
) -> None:
    """Deliver under so many kills, and require that all is there once, as the format's library and DuckDB's reader see it.

    Meanwhile `acts` go on in turn, one `every_s`, and each may fail. A driver lives for `longest_s` at most, at times beside a
    second one.
    """
    generator = random.Random(f"{SEED} {type(rig).__name__}")
    live(rig, [0])
    ends, upto, rivals = Counter[int](), 0, 0
    with _going_on(acts, every_s, fails) as done:
        while ends[-signal.SIGKILL] < kills:
            numbers = range(upto, upto + 1 + BATCHES)  # the newest one comes again, as Spark's does
            drivers = [Driver(rig, numbers) for _ in range(1 + (generator.randrange(RIVALS_ONE_IN) == 0))]
            rivals += len(drivers) - 1
            for driver in drivers:
                code = driver.kill(generator, longest_s=longest_s)
                assert code in {0, RAISED, -signal.SIGKILL}
                ends[code] += 1
            upto = decided_upto(rig)
    what = f"{type(rig).__name__} of {rig.log().format}"
    print(f"PENSTOCK_SEED={SEED}: {what}: ended with {ends} after {upto} batches, {rivals} times two drivers, beside {done}")
    live(rig, [upto, upto + 1])
    there = list(rig.settle([rows_of(number, rig) for number in range(upto + 2)]))
    require_equal(rig.read_back(), there)
    require_equal(rig.seen_by_duckdb(), there)
    report = verify(rig)
    assert report.ok, report


@contextmanager
def _going_on(
    acts: Sequence[Callable[[], object]], every_s: float, fails: tuple[type[Exception], ...]
) -> Iterator["Counter[str]"]:
    """In a thread of its own; how often each was done."""
    over, done = threading.Event(), Counter[str]()

    def work() -> None:
        while not over.is_set():
            for act in acts:
                with suppress(*fails):
                    act()
                    done[act.__name__] += 1
                over.wait(every_s)

    worker = threading.Thread(target=work)
    worker.start()
    try:
        yield done
    finally:
        over.set()
        worker.join()
