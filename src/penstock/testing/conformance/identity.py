"""Two ledgers of one pipeline name on one target: the first to publish has it, the other one is refused."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from penstock.errors import LedgerMismatch, PenstockError
from penstock.ledger.open import open_ledger
from penstock.model import LedgerId, Published
from penstock.testing.conformance.bench import Bench, publish
from penstock.testing.conformance.rig import PIPELINE, SinkRig
from penstock.testing.conformance.rows import require_equal
from penstock.testing.conformance.staging import Examined
from penstock.testing.conformance.story import live, rows_of

_LEDGERS = LedgerId("a" * 32), LedgerId("b" * 32)


class IdentityContract(Examined):
    """Names and positions are no identity: nobody moves a marker of another ledger, however its positions compare."""

    def test_a_longer_ledger_of_the_same_name_delivers_nothing_twice(self, rig: SinkRig) -> None:
        """The other one was started three times with nothing to do, so that the marker's position is within its own."""
        other = str(rig.directory / "another-ledger")
        for _ in range(3):
            live(rig, [], ledger=open_ledger(other, pipeline=PIPELINE))
        live(rig, [0])
        with pytest.raises(LedgerMismatch):
            live(rig, [0], ledger=open_ledger(other, pipeline=PIPELINE))
        require_equal(rig.read_back(), rig.settle([rows_of(0, rig)]))
        live(rig, [0, 1])
        require_equal(rig.read_back(), rig.settle([rows_of(0, rig), rows_of(1, rig)]))

    def test_of_two_ledgers_that_begin_at_the_same_moment_one_publishes(self, bench: Bench) -> None:
        """Each decided the same batch at the same position, of attempts of its own."""
        sinks, start = [bench.sink() for _ in _LEDGERS], Barrier(len(_LEDGERS))
        rows = [bench.rows(range(120)), bench.rows(range(120))]
        staged = [bench.stage(sinks[at], rows[at], batch_id=0, task_attempt=at) for at in (0, 1)]
        shown = [
            bench.undecided((rows[at], staged[at]), batch_id=0, position=2 + at, ledger_id=ledger_id)
            for at, ledger_id in enumerate(_LEDGERS)
        ]

        def run(at: int) -> Published | PenstockError:
            start.wait()
            try:
                return publish(sinks[at], shown[at].publication)
            except PenstockError as error:
                return error

        with ThreadPoolExecutor(len(_LEDGERS)) as pool:
            answers = list(pool.map(run, range(len(_LEDGERS))))
        assert Counter(type(answer) for answer in answers) == {Published: 1, LedgerMismatch: 1}, answers
        [winner] = [at for at, answer in enumerate(answers) if isinstance(answer, Published)]
        bench.require_shown(shown[winner])
        with pytest.raises(LedgerMismatch):
            publish(bench.sink(), shown[1 - winner].publication)
        bench.require_shown(shown[winner])
