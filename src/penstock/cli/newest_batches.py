"""The newest batches of a pipeline, below the status that `penstock watch` shows: how fast they were, and where the time went."""

from collections.abc import Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.text import Text

from penstock.cli.table import facts
from penstock.errors import PenstockError
from penstock.support import formatting

if TYPE_CHECKING:
    from penstock.observe.batch_life import BatchLife
    from penstock.observe.history import HistoryRow
    from penstock.observe.page.watched import Watched
    from penstock.observe.status import Status

SHOWN = 40
_BARS = "▁▂▃▄▅▆▇█"


class NewestBatches:
    """Reads the newest batches again when the ledger has a newer entry. They are left out while it cannot be read.

    What was measured of them is noted after their entry, and read at each look.
    """

    def __init__(self, watched: "Watched") -> None:
        self._watched = watched
        self._tail: int | None = None
        self._rows: Sequence[HistoryRow] = ()

    def lives(self, look: "Status") -> "Sequence[BatchLife]":
        """Return them for the status that was just read, newest first."""
        from penstock.observe.batch_life import lives_of

        if look.tail != self._tail:
            try:
                with closing(self._watched.open_ledger()) as ledger:
                    self._rows, self._tail = self._watched.recent.read(ledger), look.tail
            except PenstockError:
                self._rows = ()
        return lives_of(self._rows, home=self._watched.home)


def text_of_batches(newest_first: "Sequence[BatchLife]") -> RenderableType:
    """Render batches for people: rows per second of all as bars, the oldest first, and the steps of the newest one."""
    batches = [life for life in newest_first if life.entry.kind == "decided"][:SHOWN]
    if not batches:
        return Text()
    newest = batches[0]
    rate = "" if newest.rows_per_s is None else f"  {formatting.rate(newest.rows_per_s)}"
    return facts(
        [
            ("rows per second", f"{bars([life.rows_per_s or 0.0 for life in reversed(batches)])}{rate}"),
            (f"batch {newest.entry.batch_id}", steps_in_words(newest) or None),
        ]
    )


def bars(values: Sequence[float]) -> str:
    """Return one character for each value, as high as its share of the largest."""
    top = max(values, default=0.0)
    return "".join(_BARS[round(value / top * (len(_BARS) - 1))] if top else _BARS[0] for value in values)


def steps_in_words(life: "BatchLife") -> str:
    """Return the steps of a batch with their durations; empty if none was measured."""
    shown = (f"{step.kind.value} {step.sink or ''}".rstrip() + f" {formatting.duration(step.duration_ms)}" for step in life.steps)
    return ", ".join(shown)
