"""SIGKILL, SIGSTOP and network cuts of the active machine and of its standby, at random moments: exactly once, and one decides.

CI runs a slice; `make soak` runs PENSTOCK_SOAK_KILLS of them. The seed is printed; PENSTOCK_SEED replays it.
"""

import os
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from penstock.core.model import Decided, Entry, PipelineName, Position
from penstock.ledger.open import open_ledger
from penstock.protocols import Ledger
from tests.crash.machines import PATIENCE_S, Machine, both, strike
from tests.crash.polling import Poller
from tests.crash.probe import Probe
from tests.crash.world import World, make_world
from tests.seed import SEED
from tests.servers import link
from tests.servers.fixtures import server, unique

FAULTS = int(os.environ.get("PENSTOCK_SOAK_KILLS", "3"))
FAULTS_PER_PAIR = 25
ROWS = 6
LOOK_S = 0.05

pytestmark = [
    pytest.mark.crash,
    pytest.mark.spark,
    pytest.mark.campaign,
    pytest.mark.timeout(2 * 3600),
    pytest.mark.usefixtures("spark"),
]


class Reader(Probe):
    """As a Probe, which would take most of a processor from the machines."""

    pause_s = LOOK_S


class Writers(Poller):
    """Reads the ledger all the time: what stands there never changes, and no generation decides after a newer one opened."""

    pause_s = LOOK_S

    def __init__(self, ledger: Ledger) -> None:
        super().__init__()
        self._ledger, self.entries = ledger, dict[Position, Entry]()

    def look(self) -> None:
        newer: list[Entry] = []
        for entry in self._ledger.newest_first():
            if entry.position in self.entries:
                if entry != self.entries[entry.position]:
                    self.violations.append(f"entry {entry.position} changed after it was seen")
                break
            newer.append(entry)
        for entry in reversed(newer):
            self._take(entry)

    def _take(self, entry: Entry) -> None:
        before = self.entries.get(Position(entry.position - 1))
        if self.entries and before is None:
            self.violations.append(f"entry {entry.position} follows none that was seen")
        elif before is not None and entry.generation < before.generation:
            self.violations.append(f"generation {entry.generation} decided at {entry.position}, after {before.generation} opened")
        self.entries[entry.position] = entry

    def batches(self) -> Sequence[int]:
        """Those that were decided, in their order."""
        entries = (self.entries[position] for position in sorted(self.entries))
        return [entry.body.decision.batch.batch_id for entry in entries if isinstance(entry.body, Decided)]


@contextmanager
def machines_of(world: World, *, is_served: bool) -> Iterator[tuple[Sequence[Machine], Ledger]]:
    """Two machines, each with its own way to a ledger in PostgreSQL, or both with one in a directory."""
    name = PipelineName("crash")
    if not is_served:
        world.rewrite(("trigger:", "ledger: ./state/ledger\ntrigger:"))
        first, second = Machine("first", world, world.file), Machine("second", world, world.file)
        with closing(open_ledger(str(world.root / "state" / "ledger"), pipeline=name)) as ledger, both(first, second) as pair:
            yield pair, ledger
        return
    running, database = server("postgres"), unique("standby")
    url = running.database(database)
    with link.before(running.port) as one, link.before(running.port) as other:
        machines = []
        for called, way in (("first", one), ("second", other)):
            file = world.root / f"{called}.yaml"
            through = running.url(database, port=way.port)
            file.write_text(world.file.read_text().replace("trigger:", f"ledger: {through}\ntrigger:"))
            machines.append(Machine(called, world, file, way))
        world.rewrite(("trigger:", f"ledger: {url}\ntrigger:"))
        with closing(open_ledger(url, pipeline=name)) as ledger, both(*machines) as pair:
            yield pair, ledger


def await_delivery(world: World, machines: Sequence[Machine]) -> None:
    """I11: however the fault hit them, what was fed arrives."""
    expected, deadline = sum(rows.total() for rows in world.expected.values()), time.monotonic() + PATIENCE_S
    while (found := world.sold()) < expected:
        assert time.monotonic() < deadline, f"{found} of {expected} rows: {[machine.texts[-9:] for machine in machines]}"
        threading.Event().wait(LOOK_S)


def strike_often(world: World, machines: Sequence[Machine], generator: random.Random, faults: Sequence[str]) -> list[str]:
    struck = []
    for number, kind in enumerate(faults):
        if generator.random() < 2 / 3:  # otherwise it hits a driver that starts, or the active one while the other starts
            for machine in machines:
                machine.await_that(lambda machine=machine: machine.is_active or machine.is_standing_by, what="a warm driver")
        world.feed(generator, files=generator.randint(1, 3), rows_per_file=ROWS)
        threading.Event().wait(generator.uniform(0, 1.0))
        struck.append(strike(machines, generator, kind))
        print(f"{time.strftime('%H:%M:%S')} {number}: {struck[-1]}", flush=True)
        world.feed(generator, files=1, rows_per_file=ROWS)
        await_delivery(world, machines)
    return struck


def drawn(generator: random.Random, kinds: Sequence[str], count: int) -> list[str]:
    """Each of `kinds` about as often, whatever the count is."""
    faults = [kinds[number % len(kinds)] for number in range(count)]
    generator.shuffle(faults)
    return faults


@pytest.mark.parametrize("part", range(-(-FAULTS // FAULTS_PER_PAIR)))
def test_random_faults_of_both_machines_lose_nothing_and_one_decides(tmp_path: Path, part: int) -> None:
    generator, is_served = random.Random(SEED + part), part % 2 == 0
    world = make_world(tmp_path / "world", files=2, rows_per_file=ROWS, seed=SEED + part)
    world.rewrite(("{available_now: true}", "{processing_time: 250ms}"), ("retry_timeout: 5s", "retry_timeout: 10s"))
    kinds = ["kill", "stop", "cut"] if is_served else ["kill", "stop"]
    faults = drawn(generator, kinds, min(FAULTS_PER_PAIR, FAULTS - part * FAULTS_PER_PAIR))
    with machines_of(world, is_served=is_served) as (machines, ledger):
        with Reader(world) as probe, Writers(ledger) as writers:
            await_delivery(world, machines)
            struck = strike_often(world, machines, generator, faults)
            codes = [machine.end() for machine in machines]
        writers.look()
    counts = dict(sorted(Counter(struck).items()))
    print(f"PENSTOCK_SEED={SEED} part {part}: {counts}; the readers looked {probe.passes} and {writers.passes} times")
    assert codes == [0, 0], [machine.errors for machine in machines]
    assert [probe.violations, writers.violations] == [[], []]
    assert writers.batches() == list(range(len(writers.batches())))
    assert max(entry.generation for entry in writers.entries.values()) > 1
    world.run_to_the_end()
    world.assert_exact()
    world.assert_verified()
