"""Tests of staging: invisible, separate for each attempt, and collected unless decided."""

from collections.abc import Iterator, Sequence

import pytest

from penstock.errors import PenstockError
from penstock.protocols import Sink, StageWriter
from penstock.testing.conformance.bench import Bench, attempt, publish, travelled
from penstock.testing.conformance.rig import PIPELINE, SinkRig
from penstock.testing.conformance.rows import Row, as_batch


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
        """Every start prepares."""
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
        schema = as_batch([], bench.rig.schema).schema
        writers = [stager.open(attempt(0, 1, partition, 0), schema) for partition in range(2)]
        for start in (0, 35):
            for writer, part in zip(writers, rows, strict=True):
                bench.write(writer, sink, part[start : start + 35])
        staged = [(part, tuple(writer.finish())) for writer, part in zip(writers, rows, strict=True)]
        shown = bench.decide(*staged, batch_id=0)
        publish(sink, shown.publication)
        bench.require_shown(shown)

    def test_an_attempt_without_rows_stages_nothing(self, bench: Bench) -> None:
        """Empty partitions cost nothing."""
        sink = bench.sink()
        assert bench.stage(sink, [], batch_id=0) == ()
        writer = sink.stager().open(attempt(0, 1, 1, 0), as_batch([], bench.rig.schema).schema)
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
        zombie = old.stager().open(attempt(0, 1, 0, 0), as_batch([], bench.rig.schema).schema)
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
