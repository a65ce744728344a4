"""Tests of two ledgers of one pipeline name on one target: neither moves what the other decided."""

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from penstock.core.high_water_mark import HighWaterMark
from penstock.core.model import LedgerId
from penstock.errors import LedgerMismatch
from penstock.ledger.log import LogLedger
from penstock.ledger.open import open_ledger
from penstock.ledger.store import MemoryStore
from penstock.protocols import HasMarker, Ledger, Sink
from penstock.testing.conformance.bench import Bench, Shown, publish
from penstock.testing.conformance.rig import LEDGER_ID, PIPELINE, Row, SinkRig, require_equal
from penstock.testing.conformance.staging import Examined
from penstock.testing.conformance.story import live, rows_of

_ANOTHER = LedgerId("a7" * 16)
_Homes = tuple[Callable[[], Ledger], Callable[[], Ledger]]


class IdentityContract(Examined):
    """For every sink with a marker: names and positions are no identity, and a marker of another ledger is never moved."""

    @pytest.mark.parametrize("swapped", [False, True], ids=["plain", "swapped"])
    def test_a_longer_ledger_does_not_deliver_what_another_one_delivered(self, bench: Bench, *, swapped: bool) -> None:
        """B was opened three times before its first batch, so A's marker at position 2 is not beyond B's end."""
        rig = bench.rig
        a, b = _homes(rig, swapped=swapped)
        for _ in range(2):
            _live_apart(rig, [], ledger=b())
        with pytest.raises(LedgerMismatch):
            live(rig, [0], ledger=b(), once_open=lambda: _live_apart(rig, [0], ledger=a()))
        require_equal(rig.read_back(), rig.settle([rows_of(0, rig)]))
        _live_apart(rig, [1], ledger=a())
        require_equal(rig.read_back(), rig.settle([rows_of(0, rig), rows_of(1, rig)]))

    def test_a_ledger_that_starts_after_another_one_delivered_is_refused(self, rig: SinkRig) -> None:
        """It was opened several times before, so the marker's position is within the ledger's own."""
        a, b = _homes(rig, swapped=False)
        for _ in range(3):
            _live_apart(rig, [], ledger=b())
        _live_apart(rig, [0], ledger=a())
        with pytest.raises(LedgerMismatch):
            live(rig, [0], ledger=b())
        require_equal(rig.read_back(), rig.settle([rows_of(0, rig)]))

    def test_of_a_ledger_and_its_copy_one_delivers_a_batch(self, bench: Bench) -> None:
        """Both have one identity. The copy is opened twice before the ledger delivers.

        So what the ledger decides is neither beyond the copy's end, nor at the position where the copy decides the same batch.
        """
        rig, store = bench.rig, MemoryStore()
        live(rig, [0], ledger=_in_memory(store))
        copy = MemoryStore()
        for key in store.keys(""):
            copy.put(key, store.get(key) or b"")
        live(rig, [], ledger=_in_memory(copy))
        with pytest.raises(LedgerMismatch, match="a copy of it delivers, too"):
            live(rig, [1], ledger=_in_memory(copy), once_open=lambda: live(rig, [1], ledger=_in_memory(store)))
        require_equal(rig.read_back(), rig.settle([rows_of(0, rig), rows_of(1, rig)]))
        live(rig, [1, 2], ledger=_in_memory(store))
        require_equal(rig.read_back(), rig.settle([rows_of(number, rig) for number in range(3)]))

    @pytest.mark.parametrize("first", [0, 1])
    def test_of_two_homes_that_begin_at_once_the_first_one_that_publishes_delivers(self, bench: Bench, first: int) -> None:
        """Both have prepared, and decided the same batch at the same position in the same generation."""
        decided = _decided_by_both(bench)
        sinks = [bench.sink(), bench.sink()]
        publish(sinks[first], decided[first].publication)
        with pytest.raises(LedgerMismatch):
            publish(sinks[1 - first], decided[1 - first].publication)
        bench.require_shown(decided[first])
        assert publish(sinks[first], decided[first].publication).already

    @pytest.mark.parametrize("positions", [(2, 2), (2, 3)], ids=["same", "next"])
    def test_of_two_homes_that_publish_at_once_exactly_one_delivers(self, bench: Bench, positions: tuple[int, int]) -> None:
        """Both pass one barrier, with the same position or different ones."""
        decided = _decided_by_both(bench, positions)
        sinks, start = [bench.sink(), bench.sink()], threading.Barrier(2)

        def run(at: int) -> str:
            start.wait()
            try:
                return "already" if publish(sinks[at], decided[at].publication).already else "delivered"
            except LedgerMismatch:
                return "refused"

        with ThreadPoolExecutor(2) as pool:
            answers = list(pool.map(run, range(2)))
        assert sorted(answers) == ["delivered", "refused"]
        winner = answers.index("delivered")
        bench.require_shown(decided[winner])
        with pytest.raises(LedgerMismatch):
            publish(bench.sink(), decided[1 - winner].publication)
        bench.require_shown(decided[winner])

    def test_a_marker_of_an_older_penstock_is_taken_over_once(self, bench: Bench) -> None:
        """The next ledger to publish becomes its owner: its start has compared the batch at the marker's position."""
        sink = bench.sink()
        older = _decided(bench, sink, bench.rows(range(40)), batch_id=0, position=2, ledger_id=None)
        publish(sink, older.publication)
        assert {mark.ledger_id for mark in _marks(sink)} == {None}
        assert {(mark.position, mark.batch_id) for mark in _marks(sink)} == {(2, 0)}
        own = _decided(bench, sink, bench.rows(range(100, 140)), batch_id=1, position=3, ledger_id=LEDGER_ID)
        publish(sink, own.publication)
        assert {mark.ledger_id for mark in _marks(sink)} == {LEDGER_ID}
        foreign = _decided(bench, sink, bench.rows(range(200, 240)), batch_id=2, position=9, ledger_id=_ANOTHER)
        with pytest.raises(LedgerMismatch):
            publish(bench.sink(), foreign.publication)
        bench.require_shown(older, own)
        assert publish(bench.sink(), own.publication).already


def _homes(rig: SinkRig, *, swapped: bool) -> _Homes:
    """Return factories of the rig's ledger and of another one. A sink may share its database with either."""

    def another() -> Ledger:
        return open_ledger(str(rig.directory / "another ledger"), pipeline=PIPELINE)

    return (another, rig.ledger) if swapped else (rig.ledger, another)


def _live_apart(rig: SinkRig, batches: list[int], *, ledger: Ledger) -> None:
    """Call `live` with a spool of this home's own: the other ledger's signatures are removed meanwhile."""
    others = {path: path.read_bytes() for path in _signatures(rig)}
    _remove(others)
    live(rig, batches, ledger=ledger)
    _remove(_signatures(rig))
    for path, content in others.items():
        path.write_bytes(content)


def _signatures(rig: SinkRig) -> list[Path]:
    return list(rig.directory.rglob("ledger-g*.id"))


def _remove(paths: Iterable[Path]) -> None:
    for path in paths:
        path.unlink()


def _in_memory(store: MemoryStore) -> Ledger:
    return LogLedger(store, pipeline=PIPELINE)


def _decided_by_both(bench: Bench, positions: tuple[int, int] = (2, 2)) -> list[Shown]:
    sink, rows = bench.sink(), bench.rows(range(60))
    ledgers = zip((LEDGER_ID, _ANOTHER), positions, strict=True)
    return [_decided(bench, sink, rows, batch_id=0, position=at, ledger_id=one) for one, at in ledgers]


def _decided(bench: Bench, sink: Sink, rows: list[Row], *, batch_id: int, position: int, ledger_id: LedgerId | None) -> Shown:
    staged = bench.stage(sink, rows, batch_id=batch_id)
    return bench.undecided((rows, staged), batch_id=batch_id, position=position, ledger_id=ledger_id)


def _marks(sink: Sink) -> list[HighWaterMark]:
    """Return the markers of all accounts, each of which has rows."""
    assert isinstance(sink, HasMarker)
    found = [sink.high_water_mark(account, pipeline=PIPELINE) for account in sink.accounts]
    return [mark for mark in found if mark is not None]
