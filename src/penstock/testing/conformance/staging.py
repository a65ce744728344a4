"""Tests of staging: invisible, separate for each attempt, and swept unless it is decided or can be. A sweep reads no clock."""

from collections.abc import Iterator, Sequence

import pytest

from penstock.core.model import Attempt, BatchId, Generation, SweepCut
from penstock.errors import PenstockError
from penstock.protocols import HasStaging, Sink, StageWriter
from penstock.testing.conformance.bench import Bench, attempt, publish, travelled
from penstock.testing.conformance.rig import LEDGER_ID, PIPELINE, Row, SinkRig


class Examined:
    """Provides the fixture `bench`."""

    @pytest.fixture
    def bench(self, rig: SinkRig) -> Iterator[Bench]:
        """Give a bench on the rig, and close it."""
        bench = Bench(rig)
        yield bench
        bench.close()


class StageContract(Examined):
    """What task attempts may leave behind, and what readers may see of it."""

    def test_it_satisfies_the_protocol(self, bench: Bench) -> None:
        sink = bench.sink()
        assert isinstance(sink.name, str)
        assert sink.accounts
        assert set(sink.describe()) >= {"stage", "publish"}
        assert all(finding.message for finding in sink.check())

    def test_preparing_again_changes_nothing(self, bench: Bench) -> None:
        first = bench.sink()
        shown = bench.deliver(first, bench.rows(range(30)), batch_id=0)
        first.prepare(pipeline=PIPELINE, schema=bench.rig.schema)
        bench.sink()
        bench.require_shown(shown)

    def test_staging_is_invisible(self, bench: Bench) -> None:
        sink = bench.sink()
        shown = bench.deliver(sink, bench.rows(range(30)), batch_id=0)
        bench.stage(sink, bench.rows(range(100, 200)), batch_id=1)
        bench.abandoned(sink, bench.rows(range(200, 300)), batch_id=1, partition=1)
        bench.require_shown(shown)

    def test_a_stager_is_small_and_serves_many_attempts_at_once(self, bench: Bench) -> None:
        """The stager is pickled, and its writers do not disturb each other."""
        sink = bench.sink()
        stager, rows = travelled(sink.stager()), [bench.rows(range(50)), bench.rows(range(50, 120))]
        schema = bench.schema
        writers = [stager.open(attempt(0, 1, partition, 0), schema) for partition in range(2)]
        for start in (0, 35):
            for writer, part in zip(writers, rows, strict=True):
                bench.write(writer, sink, part[start : start + 35])
        staged = [(part, tuple(writer.finish())) for writer, part in zip(writers, rows, strict=True)]
        shown = bench.decide(*staged, batch_id=0)
        publish(sink, shown.publication)
        bench.require_shown(shown)

    def test_an_attempt_without_rows_stages_nothing(self, bench: Bench) -> None:
        sink = bench.sink()
        assert bench.stage(sink, [], batch_id=0) == ()
        writer = sink.stager().open(attempt(0, 1, 1, 0), bench.schema)
        bench.write(writer, sink, [])
        assert list(writer.finish()) == []
        assert list(bench.rig.read_back()) == []

    def test_staged_messages_tell_the_truth(self, bench: Bench) -> None:
        sink, rows = bench.sink(), bench.rows(range(90))
        staged = bench.stage(sink, rows, batch_id=0)
        assert sum(piece.totals.rows for piece in staged) == len(rows)
        assert {piece.sink for piece in staged} == {sink.name}
        assert {piece.account for piece in staged} <= set(sink.accounts)
        assert len({piece.attempt for piece in staged}) == 1

    def test_only_the_decided_one_of_several_attempts_is_ever_seen(self, bench: Bench) -> None:
        """Retried and speculative attempts leave garbage, never data."""
        sink, rows = bench.sink(), bench.rows(range(60))
        bench.stage(sink, rows, batch_id=0, task_attempt=0)
        chosen = bench.stage(sink, rows, batch_id=0, task_attempt=1)
        bench.stage(sink, bench.rows(range(1000, 1060)), batch_id=0, task_attempt=2)
        shown = bench.decide((rows, chosen), batch_id=0)
        publish(sink, shown.publication)
        bench.require_shown(shown)
        sink.sweep(bench.cut(), dry_run=False)
        bench.require_shown(shown)
        assert list(bench.rig.leftovers()) == []

    def test_a_zombie_attempt_that_goes_on_after_the_sweep_is_never_seen(self, bench: Bench) -> None:
        old, rows = bench.sink(), bench.rows(range(60))
        zombie = old.stager().open(attempt(0, 1, 0, 0), bench.schema)
        bench.write(zombie, old, rows[:30])
        new = bench.sink()
        new.sweep(bench.cut(generation=2), dry_run=False)
        _go_on(bench, zombie, old, rows[30:])
        shown = bench.deliver(new, bench.rows(range(500, 540)), batch_id=0)
        bench.require_shown(shown)
        new.sweep(bench.cut(generation=3), dry_run=False)
        assert list(bench.rig.leftovers()) == []


def _go_on(bench: Bench, zombie: StageWriter, sink: Sink, rows: Sequence[Row]) -> None:
    """Let the zombie write on. It may fail, since its staging was collected, but it must not be seen."""
    try:
        bench.write(zombie, sink, rows)
        zombie.finish()
    except PenstockError:
        zombie.abandon()


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
