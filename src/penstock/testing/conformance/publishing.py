"""Tests of publishing: exactly what was decided, however often, by how many drivers, and with a reader that never stops."""

import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain

import pytest

from penstock.core.model import Published, QueryId
from penstock.errors import PenstockError, StagedDataLost
from penstock.testing.conformance.bench import Bench, Shown, publish
from penstock.testing.conformance.rig import PIPELINE, Content, Row, SinkRig, content
from penstock.testing.conformance.staging import Examined


class PublishContract(Examined):
    """Publishing is idempotent and rolls forward only."""

    def test_what_was_decided_is_shown_value_by_value(self, bench: Bench) -> None:
        """Hostile texts, extreme numbers and nulls arrive as they were."""
        sink = bench.sink()
        shown = [bench.deliver(sink, bench.rows(range(at, at + 130)), bench.rows([at + 500]), batch_id=at) for at in (0, 1000)]
        bench.require_shown(*shown)

    def test_what_the_driver_staged_itself_is_shown_value_by_value(self, bench: Bench) -> None:
        """The driver may still have the rows in memory; the next process does not."""
        sink, rows = bench.sink(), [bench.rows(range(at, at + 130)) for at in (0, 1000)]
        shown = [bench.decide((rows[at], bench.stage_here(sink, rows[at], batch_id=at)), batch_id=at) for at in (0, 1)]
        publish(sink, shown[0].publication)
        publish(bench.sink(), shown[1].publication)
        bench.require_shown(*shown)
        assert bench.verify(sink).ok

    def test_publishing_again_changes_nothing(self, bench: Bench) -> None:
        """The same sink object and another one both answer `already`."""
        sink, rows = bench.sink(), bench.rows(range(100))
        shown = bench.decide((rows, bench.stage(sink, rows, batch_id=0)), batch_id=0)
        first = sink.publish(shown.publication)
        again = [sink.publish(shown.publication), bench.sink().publish(shown.publication), sink.publish(shown.publication)]
        assert [first.already, *(answer.already for answer in again)] == [False, True, True, True]
        assert {answer.totals for answer in again} == {first.totals}
        assert first.totals.rows == shown.publication.totals.rows
        bench.require_shown(shown)

    def test_another_object_publishes_what_the_first_one_staged(self, bench: Bench) -> None:
        """Recovery needs only the decision and the staging."""
        sink, rows = bench.sink(), bench.rows(range(100))
        shown = bench.decide((rows, bench.stage(sink, rows, batch_id=0)), batch_id=0)
        sink.close()
        recovering = bench.rig.make_hashing()
        recovering.prepare(pipeline=PIPELINE, schema=None)
        assert not recovering.publish(shown.publication).already
        recovering.close()
        bench.require_shown(shown)

    def test_a_batch_without_rows_changes_nothing(self, bench: Bench) -> None:
        sink = bench.sink()
        empty = bench.decide(batch_id=0)
        publish(sink, empty.publication)
        publish(sink, empty.publication)
        shown = bench.deliver(sink, bench.rows(range(20)), batch_id=1)
        bench.require_shown(shown)
        assert bench.verify(sink).ok

    def test_a_zombie_that_publishes_an_older_batch_changes_nothing(self, bench: Bench) -> None:
        """A driver that goes on beside a newer one gets `already`."""
        zombie, sink = bench.sink(), bench.sink()
        shown = [bench.deliver(sink, bench.rows(range(at, at + 50)), batch_id=at) for at in (0, 100, 200)]
        for late in (shown[0], shown[1], shown[0]):
            assert zombie.publish(late.publication).already
            bench.require_shown(*shown)
        assert bench.verify(sink).ok

    def test_maintenance_is_respected(self, bench: Bench) -> None:
        """A repetition does not bring back rows that were removed from the target after they were shown."""
        sink = bench.sink()
        shown = bench.deliver(sink, bench.rows(range(50)), batch_id=0)
        sink.close()
        bench.rig.damage("lost")
        before = len(list(bench.rig.read_back()))
        assert before < len(shown.rows)
        assert bench.sink().publish(shown.publication).already
        assert len(list(bench.rig.read_back())) == before

    def test_a_position_of_another_ledger_is_not_taken_for_published(self, bench: Bench) -> None:
        """A new ledger counts from 1 again: skipping its batches because the target's position is higher would lose them."""
        sink = bench.sink()
        shown = [bench.deliver(sink, bench.rows(range(at, at + 20)), batch_id=at) for at in (0, 100, 200)]
        for position in (2, 3, 4):
            rows = bench.rows(range(900, 910))
            staged = bench.stage(sink, rows, batch_id=300, partition=position)
            foreign = bench.undecided((rows, staged), batch_id=300, position=position, query_id=QueryId("another"))
            with pytest.raises(PenstockError):
                sink.publish(foreign.publication)
            bench.require_shown(*shown)


class StagingLossContract(Examined):
    """For rigs with `lose_staging`."""

    def test_lost_staging_is_told_and_nothing_of_the_batch_is_shown(self, bench: Bench) -> None:
        """A decided piece that is missing or damaged is never skipped."""
        sink, rows = bench.sink(), bench.rows(range(300))
        before = bench.deliver(sink, bench.rows(range(1000, 1020)), batch_id=0)
        shown = bench.decide((rows, bench.stage(sink, rows, batch_id=1)), batch_id=1)
        bench.rig.lose_staging()
        with pytest.raises(StagedDataLost):
            sink.publish(shown.publication)
        bench.require_shown(before)


_PUBLISHERS = 4


class RaceContract(Examined):
    """The content is the same however many publish it, and readers see whole batches or whole pieces only."""

    def test_publishers_in_threads(self, bench: Bench) -> None:
        sink, rows = bench.sink(), bench.rows(range(200))
        shown = bench.decide((rows, bench.stage(sink, rows, batch_id=0)), batch_id=0)
        sinks, start = [bench.sink() for _ in range(_PUBLISHERS)], threading.Barrier(_PUBLISHERS)

        def run(at: int) -> Published:
            start.wait()
            return publish(sinks[at], shown.publication)

        with ThreadPoolExecutor(_PUBLISHERS) as pool:
            answers = list(pool.map(run, range(_PUBLISHERS)))
        assert {answer.totals.rows for answer in answers} == {200}
        bench.require_shown(shown)
        assert bench.verify(sink).ok

    def test_readers_see_whole_things_only(self, bench: Bench) -> None:
        """A reader that reads all the time never sees a part, and nothing it saw vanishes."""
        sink, stop = bench.sink(), threading.Event()
        staged = [[bench.rows(range(at, at + 40)), bench.rows(range(at + 500, at + 540))] for at in range(0, 3000, 1000)]
        seen: list[Content] = []

        def look() -> None:
            while not stop.is_set():
                found = content(bench.rig.read_back())
                if not seen or found != seen[-1]:
                    seen.append(found)

        with ThreadPoolExecutor(1) as pool:
            reader = pool.submit(look)
            try:
                shown = [bench.deliver(sink, *attempts, batch_id=at) for at, attempts in enumerate(staged)]
            finally:
                stop.set()
            reader.result()
        bench.require_shown(*shown)
        _require_whole(bench.rig, seen, shown)


def _require_whole(rig: SinkRig, seen: Sequence[Content], shown: Sequence[Shown]) -> None:
    steps = [content(rig.settle([one.rows for one in shown[:upto]])) for upto in range(len(shown) + 1)]
    if rig.whole_batches:
        assert [found for found in seen if found not in steps] == []
        order = [steps.index(found) for found in seen]
        assert order == sorted(order)
        return
    if rig.has_deletes:
        _require_forward(rig, seen, shown, steps)
        return
    pieces = [piece for batch in shown for attempt in batch.attempts for piece in _pieces(rig, attempt)]
    for before, found in zip([Counter(), *seen], seen, strict=False):
        assert before <= found <= steps[-1]
        assert [piece for piece in pieces if piece & found and not piece <= found] == []


def _require_forward(rig: SinkRig, seen: Sequence[Content], shown: Sequence[Shown], steps: Sequence[Content]) -> None:
    """Require that the rows of each unit went through what the batches made of them, in their order, vanished rows included."""
    unit_of = {key: rig.unit_of(row) for one in shown for row in _each_alone(rig, one.rows) for key in content([row])}

    def by_unit(found: Content) -> dict[object, Content]:
        units: dict[object, Content] = {}
        for key, times in found.items():
            units.setdefault(unit_of[key], Counter())[key] = times
        return units

    reached, states = dict.fromkeys(unit_of.values(), 0), [by_unit(step) for step in steps]
    for found in map(by_unit, seen):
        for unit, number in reached.items():
            later = [at for at in range(number, len(states)) if states[at].get(unit) == found.get(unit)]
            assert later, (unit, found.get(unit))
            reached[unit] = later[0]


def _each_alone(rig: SinkRig, rows: Iterable[Row]) -> Iterator[Row]:
    return chain.from_iterable(rig.settle([[row]]) for row in rows)


def _pieces(rig: SinkRig, attempt: Sequence[Row]) -> Iterator[Content]:
    units = {rig.unit_of(row): None for row in attempt}
    return (content(row for row in attempt if rig.unit_of(row) == unit) for unit in units)
