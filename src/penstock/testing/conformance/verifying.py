"""Tests of `verify`, also beside a driver: no problem in good content, and a problem in any other."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any

import pytest

from penstock.commit.outcome import StagedBatch
from penstock.core.model import Generation, Position, RowDigest
from penstock.protocols import Sink
from penstock.testing.conformance.bench import Bench, batch_of
from penstock.testing.conformance.rig import DAMAGES, SinkRig
from penstock.testing.conformance.staging import Examined
from penstock.testing.conformance.story import clean_context, driver, end, start, verify


class VerifyContract(Examined):
    """`verify` compares every row with the ledger. `damages` are those that the target allows: with a key, no doubles."""

    damages: tuple[str, ...] = DAMAGES

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        if "damage" in metafunc.fixturenames:
            metafunc.parametrize("damage", getattr(metafunc.cls, "damages", DAMAGES))

    def test_nothing_was_ever_delivered(self, bench: Bench) -> None:
        """An empty target and an empty ledger agree."""
        report = bench.verify(bench.sink())
        assert report.ok
        assert not report.problems

    def test_good_content_is_good(self, bench: Bench) -> None:
        sink = bench.sink()
        for at in (0, 1000, 2000):
            bench.deliver(sink, bench.rows(range(at, at + 120)), bench.rows([at + 500]), batch_id=at)
        report = bench.verify(bench.sink())
        assert report.ok, report
        assert sum(account.found.rows for account in report.accounts.values()) == len(list(bench.rig.read_back()))

    def test_good_content_of_a_ledger_of_an_older_penstock_is_good(self, bench: Bench) -> None:
        """Its digests are of the older kind for ever."""
        bench.rig.row_digest = RowDigest.XXHASH64
        sink = bench.sink()
        bench.deliver(sink, bench.rows(range(60)), batch_id=0)
        assert bench.verify(bench.sink()).ok

    def test_damage_is_found(self, bench: Bench, damage: str) -> None:
        sink = bench.sink()
        for at in (0, 1000):
            bench.deliver(sink, bench.rows(range(at, at + 50)), batch_id=at)
        sink.close()
        bench.rig.damage(damage)
        report = bench.verify(bench.sink())
        assert not report.ok
        assert report.problems
        assert all(problem.message for problem in report.problems)

    def test_a_decided_batch_that_is_not_published_is_found_by_its_number(self, bench: Bench) -> None:
        """The batch number lets the operator search for it."""
        sink, rows = bench.sink(), bench.rows(range(300, 340))
        bench.deliver(sink, bench.rows(range(50)), batch_id=0)
        bench.decide((rows, bench.stage(sink, rows, batch_id=1)), batch_id=1)
        report = bench.verify(sink)
        assert not report.ok
        assert 1 in {problem.batch_id for problem in report.problems}

    def test_content_of_another_ledger_is_found(self, bench: Bench) -> None:
        """The target holds more rows than the ledger ever decided."""
        sink = bench.sink()
        for at in (0, 1000):
            bench.deliver(sink, bench.rows(range(at, at + 50)), batch_id=at)
        assert not bench.verify(sink, ledger=bench.decided[:1]).ok


_ROWS = 4
_DELIVERED_S = 120.0


@dataclass(kw_only=True)
class _Driver:
    """A driver as the test steers it: `free` has a permit for each batch that it may deliver, `delivered` for each that is."""

    free: Any
    delivered: Any
    awaited: int = 0

    def deliver(self) -> None:
        """Let it deliver one more batch, and return at once."""
        self.free.release()
        self.awaited += 1

    def await_delivered(self) -> None:
        """Return when it has delivered every batch that it was let."""
        for _ in range(self.awaited):
            assert self.delivered.acquire(timeout=_DELIVERED_S), "the driver did not deliver its batch"
        self.awaited = 0


class VerifyBesideDriverContract:
    """A driver delivers `batches` batches, in its own process unless `in_process`, while `verify` looks `looks` times."""

    looks: int = 100
    batches: int = 50
    in_process: bool = False

    def test_verify_beside_a_running_driver_finds_no_difference(self, rig: SinkRig) -> None:
        """No look finds one, whatever is decided, staged or half published meanwhile, and the looks' positions never decrease."""
        with self._driver(rig) as driving:
            positions = [Position(0)]
            for number in range(self.looks):
                if number * self.batches // self.looks != (number + 1) * self.batches // self.looks:
                    driving.deliver()
                if number == self.looks - 1:
                    driving.await_delivered()
                report = verify(rig)
                assert report.ok, report
                assert report.as_of is not None
                positions.append(report.as_of)
        assert positions == sorted(positions)
        assert positions[-1] > positions[1]
        last = verify(rig)
        assert last.ok, last
        assert sum(account.found.rows for account in last.accounts.values()) == len(list(rig.read_back()))

    def test_a_row_that_is_lost_beside_a_running_driver_is_found(self, rig: SinkRig) -> None:
        """A check that cannot fail proves nothing."""
        with self._driver(rig) as driving:
            for _ in range(3):
                driving.deliver()
                assert verify(rig).ok
            rig.damage("lost")
            for _ in range(3):
                driving.deliver()
                report = verify(rig)
                assert not report.ok
                assert report.problems

    @contextmanager
    def _driver(self, rig: SinkRig) -> Iterator[_Driver]:
        """Run a driver that has delivered one batch, while the context is open."""
        run = _in_thread if self.in_process else _in_process
        signals = threading if self.in_process else clean_context()
        driving, over = _Driver(free=signals.Semaphore(0), delivered=signals.Semaphore(0)), signals.Event()
        ended = run(rig, driving.free, over, driving.delivered)
        try:
            driving.deliver()
            driving.await_delivered()
            yield driving
        finally:
            over.set()
            driving.free.release()
            code = ended()
        assert code == 0


def drive(rig: SinkRig, free: Any, over: Any, delivered: Any) -> None:
    """Run a driver that turns every permit of `free` into a batch and a permit of `delivered`, until the event `over` is set."""
    with driver(rig, rig.ledger()) as (bench, sink, coordinator):
        for number in count():
            free.acquire()
            if over.is_set():
                return
            coordinator.deliver(batch_of(number), partial(_staged, bench, sink, number))
            delivered.release()


def _staged(bench: Bench, sink: Sink, number: int, generation: Generation) -> StagedBatch:
    start_at = number * 1000
    pieces = [
        piece
        for partition in range(2)
        for piece in bench.stage(
            sink,
            bench.rows(range(start_at + partition * 100, start_at + partition * 100 + _ROWS)),
            batch_id=number,
            generation=generation,
            partition=partition,
        )
    ]
    return StagedBatch(pieces=tuple(pieces), rows_in=2 * _ROWS, schema=bench.rig.schema)


def _in_process(rig: SinkRig, *signals: Any) -> Callable[[], int]:
    process = start(drive, rig, *signals)
    return partial(end, process)


def _in_thread(rig: SinkRig, *signals: Any) -> Callable[[], int]:
    pool = ThreadPoolExecutor(1)
    driving = pool.submit(drive, rig, *signals)

    def ended() -> int:
        driving.result()
        pool.shutdown()
        return 0

    return ended
