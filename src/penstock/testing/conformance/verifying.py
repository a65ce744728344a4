"""Tests of `verify`: no problem in good content, and a problem in any other."""

import pytest

from penstock.core.model import RowDigest
from penstock.testing.conformance.bench import Bench
from penstock.testing.conformance.rig import DAMAGES
from penstock.testing.conformance.staging import Examined


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
