"""Tests of sweeping: it collects what can never be decided, spares what a decision names, and reads no clock."""

from penstock.core.model import Attempt, BatchId, Generation, SweepCut
from penstock.protocols import HasStaging
from penstock.testing.conformance.bench import Bench, publish
from penstock.testing.conformance.rig import LEDGER_ID, PIPELINE
from penstock.testing.conformance.staging import Examined


class SweepContract(Examined):
    """No garbage stays for ever, and nothing that is needed is collected."""

    def test_a_decided_batch_survives_the_sweep_of_a_newer_generation(self, bench: Bench) -> None:
        sink, rows = bench.sink(), bench.rows(range(80))
        shown = bench.decide((rows, bench.stage(sink, rows, batch_id=0)), batch_id=0)
        bench.stage(sink, bench.rows(range(500, 520)), batch_id=0, task_attempt=1)
        recovering = bench.sink()
        recovering.sweep(bench.cut(generation=2), dry_run=False)
        publish(recovering, shown.publication)
        bench.require_shown(shown)
        recovering.sweep(bench.cut(generation=2), dry_run=False)
        bench.require_shown(shown)
        assert list(bench.rig.leftovers()) == []

    def test_a_dry_run_names_what_a_sweep_takes_and_takes_nothing(self, bench: Bench) -> None:
        """A second sweep finds nothing."""
        sink = bench.sink()
        for partition in range(3):
            bench.stage(sink, bench.rows(range(200)), batch_id=0, partition=partition)
        before = sorted(bench.rig.leftovers())
        named = sorted(sink.sweep(bench.cut(generation=2), dry_run=True))
        assert sorted(bench.rig.leftovers()) == before
        assert sorted(sink.sweep(bench.cut(generation=2), dry_run=False)) == named
        assert list(bench.rig.leftovers()) == []
        assert list(sink.sweep(bench.cut(generation=2), dry_run=False)) == []

    def test_what_a_sweep_takes_is_among_what_the_sink_tells(self, bench: Bench) -> None:
        """Both use the same names, so that people find a piece, and each piece is reported for one account."""
        sink = bench.sink()
        if not isinstance(sink, HasStaging):
            return
        for generation in (1, 2):
            bench.stage(sink, bench.rows(range(200)), batch_id=0, generation=generation)
        waiting = [found for account in sink.accounts for found in sink.waiting(account, pipeline=PIPELINE)]
        swept = sink.sweep(_cut_of(2, batch_id=-1), dry_run=False)
        assert sorted(found.name for found in waiting if found.attempt is None or found.attempt.generation == 1) == sorted(swept)
        kept = [found for account in sink.accounts for found in sink.waiting(account, pipeline=PIPELINE)]
        assert sorted(found.name for found in kept) == sorted({found.name for found in waiting} - set(swept))

    def test_a_batch_in_the_making_is_kept(self, bench: Bench) -> None:
        """Attempts of a batch newer than the last decided one may still be decided."""
        sink, rows = bench.sink(), bench.rows(range(200, 280))
        first = bench.deliver(sink, bench.rows(range(50)), batch_id=0)
        staged = bench.stage(sink, rows, batch_id=1)
        bench.sink().sweep(bench.cut(), dry_run=False)
        second = bench.decide((rows, staged), batch_id=1)
        publish(sink, second.publication)
        bench.require_shown(first, second)

    def test_a_newer_generation_is_kept(self, bench: Bench) -> None:
        """A zombie that sweeps collects nothing of the driver that replaced it."""
        zombie = bench.sink()
        sink = bench.sink()
        rows = bench.rows(range(80))
        staged = bench.stage(sink, rows, batch_id=0, generation=7)
        zombie.sweep(_cut_of(6), dry_run=False)
        shown = bench.decide((rows, staged), batch_id=0)
        publish(sink, shown.publication)
        bench.require_shown(shown)

    def test_published_content_is_never_swept(self, bench: Bench) -> None:
        sink = bench.sink()
        shown = [bench.deliver(sink, bench.rows(range(at, at + 60)), batch_id=at) for at in (0, 100)]
        sink.sweep(_cut_of(1 << 40), dry_run=False)
        bench.require_shown(*shown)
        assert bench.verify(bench.sink()).ok

    def test_names_that_are_no_attempts_are_left_alone(self, bench: Bench) -> None:
        """Only what has the name of an attempt is staging."""
        sink = bench.sink()
        bench.stage(sink, bench.rows(range(200)), batch_id=0)
        assert all(Attempt.find(name) for name in sink.sweep(_cut_of(9), dry_run=True))


def _cut_of(generation: int, *, batch_id: int = 10**6) -> SweepCut:
    return SweepCut(
        pipeline=PIPELINE, ledger_id=LEDGER_ID, generation=Generation(generation), batch_id=BatchId(batch_id), kept=frozenset()
    )
