"""Tests with several publishers at once, and with a reader that never stops reading."""

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from penstock.core.model import Published
from penstock.testing.conformance.bench import Bench, Shown, publish
from penstock.testing.conformance.rig import SinkRig
from penstock.testing.conformance.rows import Content, Row, content
from penstock.testing.conformance.staging import Examined

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
        staged = [[bench.rows(range(at, at + 90)), bench.rows(range(at + 500, at + 590))] for at in range(0, 8000, 1000)]
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
    pieces = [piece for batch in shown for attempt in batch.attempts for piece in _pieces(rig, attempt)]
    for before, found in zip([Counter(), *seen], seen, strict=False):
        assert before <= found <= steps[-1]
        assert [piece for piece in pieces if piece & found and not piece <= found] == []


def _pieces(rig: SinkRig, attempt: Sequence[Row]) -> Iterator[Content]:
    units = {rig.unit_of(row): None for row in attempt}
    return (content(row for row in attempt if rig.unit_of(row) == unit) for unit in units)
