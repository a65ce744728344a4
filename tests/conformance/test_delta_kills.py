"""Drivers of one Delta table that are killed at random moments, while others compact it, vacuum it and commit to it.

CI kills a few; `make soak` kills PENSTOCK_SOAK_KILLS. The seed is printed; PENSTOCK_SEED replays it.
"""

import os
import random
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from deltalake import CommitProperties, Transaction
from deltalake.exceptions import DeltaError
from tests.conformance.delta_rig import DeltaRig, StoreRig
from tests.seed import SEED

from penstock.testing.conformance import require_equal
from penstock.testing.conformance.story import RAISED, end, live, rows_of, start, verify

KILLS = int(os.environ.get("PENSTOCK_SOAK_KILLS", "4"))
BATCHES = 3
LONGEST_S = {DeltaRig: 1.2, StoreRig: 4.0}

pytestmark = [pytest.mark.campaign, pytest.mark.timeout(3600)]


@pytest.mark.parametrize("rig_type", [DeltaRig, StoreRig], ids=["directory", "s3"])
def test_kills_beside_maintenance_lose_nothing_and_double_nothing(tmp_path: Path, rig_type: type[DeltaRig]) -> None:
    rig, generator = rig_type(tmp_path), random.Random(f"{SEED} {rig_type.__name__}")
    live(rig, [0])
    ends, upto = Counter[int](), 0
    with maintained(rig) as done:
        while ends[-signal.SIGKILL] < KILLS:
            numbers = range(upto, upto + 1 + BATCHES)  # the newest one comes again, as Spark's does
            process = start(live, rig, numbers)
            process.join(generator.uniform(0, LONGEST_S[rig_type]))
            process.kill()
            code = end(process)
            assert code in {0, RAISED, -signal.SIGKILL}
            ends[code] += 1
            upto = decided(rig)
    print(f"PENSTOCK_SEED={SEED}: ended with {ends} after {upto} batches, beside {done}")
    live(rig, [upto, upto + 1])
    require_equal(rig.read_back(), [row for number in range(upto + 2) for row in rows_of(number, rig)])
    report = verify(rig)
    assert report.ok, report
    staged = [name for name in rig.leftovers() if not name.endswith(".parquet")]  # those are what was compacted
    assert staged == []


def decided(rig: DeltaRig) -> int:
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
def maintained(rig: DeltaRig) -> Iterator["Counter[str]"]:
    """Compact, vacuum and commit in a thread of its own; how often each was done."""
    over, done = threading.Event(), Counter[str]()

    def compact() -> None:
        rig.table().optimize.compact()

    def vacuum() -> None:
        rig.table().vacuum(dry_run=False, full=True)

    def commit() -> None:
        table = rig.table()
        properties = CommitProperties(app_transactions=[Transaction("somebody else", table.version())])
        table.create_write_transaction([], "append", table.schema(), commit_properties=properties)

    def alter() -> None:
        rig.table().alter.set_table_properties({"delta.checkpointInterval": "5"})

    def work() -> None:
        while not over.is_set():
            for act in (compact, commit, vacuum, alter):
                with suppress(DeltaError, OSError):
                    act()
                    done[act.__name__] += 1
                over.wait(0.05)

    worker = threading.Thread(target=work)
    worker.start()
    try:
        yield done
    finally:
        over.set()
        worker.join()
