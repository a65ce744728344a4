"""Drivers of one table that are killed at random moments, while others change it. PENSTOCK_SEED replays the printed seed."""

import random
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from tests.seed import SEED

from penstock.testing.conformance import Row, SinkRig, require_equal
from penstock.testing.conformance.story import RAISED, end, live, rows_of, start, verify

BATCHES = 3


def require_exact(
    rig: SinkRig,
    acts: Sequence[Callable[[], object]],
    *,
    kills: int,
    longest_s: float,
    every_s: float,
    fails: tuple[type[Exception], ...],
) -> list[Row]:
    """Deliver under so many kills, and require that all is there once, which is returned.

    Meanwhile `acts` go on in turn, one `every_s`, and each may fail. A driver lives for `longest_s` at most.
    """
    generator = random.Random(f"{SEED} {type(rig).__name__}")
    live(rig, [0])
    ends, upto = Counter[int](), 0
    with _going_on(acts, every_s, fails) as done:
        while ends[-signal.SIGKILL] < kills:
            numbers = range(upto, upto + 1 + BATCHES)  # the newest one comes again, as Spark's does
            process = start(live, rig, numbers)
            process.join(generator.uniform(0, longest_s))
            process.kill()
            code = end(process)
            assert code in {0, RAISED, -signal.SIGKILL}
            ends[code] += 1
            upto = _decided(rig)
    print(f"PENSTOCK_SEED={SEED}: ended with {ends} after {upto} batches, beside {done}")
    live(rig, [upto, upto + 1])
    there = list(rig.settle([rows_of(number, rig) for number in range(upto + 2)]))
    require_equal(rig.read_back(), there)
    report = verify(rig)
    assert report.ok, report
    return there


def _decided(rig: SinkRig) -> int:
    """The number of the newest batch that was decided."""
    ledger = rig.ledger()
    try:
        tail = ledger.tail()
        assert tail is not None
        assert tail.summary.next_batch_id is not None
        return tail.summary.next_batch_id - 1
    finally:
        ledger.close()


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
