"""What a run tells the exporters. Without any it does nothing, and whatever one of them raises stays here."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

from penstock.core.model import Generation, SinkTotals
from penstock.errors import PenstockError
from penstock.observe.batch_record import DeliveryRecord, Record
from penstock.observe.export.facts import BatchEnded, Exporter, RunEnded, RunStarted
from penstock.observe.progress import BatchProgress
from penstock.support.secret import scrub

FLUSH_S = 10.0
"""How long the end of a run waits for all receivers together."""

_TO_COUNT_S = 1.0
"""For an exporter to count what it did not send in time."""

_LOOK_S = 5.0
_log = logging.getLogger(__name__)

Busy = Callable[[], tuple[bool, int | None]]
"""Says whether a run has something to do, and which batch it delivers; None between two batches."""


@runtime_checkable
class WatchesStalls(Protocol):
    """An exporter that tells of a run that stalls."""

    @property
    def watches(self) -> bool:
        """Whether anybody wants to hear of it."""
        ...

    def busy(self, *, batch_id: int | None) -> None:
        """The run has something to do: batch `batch_id`, or None between two batches."""
        ...

    def idle(self) -> None:
        """The run has nothing to do at present."""
        ...


class Observation:
    """The exporters of one run, as the run sees them. Any thread may call it; nothing but `ended` waits, and nothing raises."""

    def __init__(self, exporters: Sequence[Exporter] = ()) -> None:
        self._exporters = tuple(exporters)
        self._run = RunStarted(generation=Generation(0), at_ms=0)
        self._record: DeliveryRecord | None = None
        self._ending, self._is_over = threading.Lock(), threading.Event()

    @property
    def is_on(self) -> bool:
        """Whether there is an exporter."""
        return bool(self._exporters)

    def describe(self, **known: Any) -> None:
        """Set fields of the RunStarted that `opened` tells: what is known before the ledger is open."""
        self._run = replace(self._run, **known)

    def opened(self, generation: Generation, totals: SinkTotals) -> None:
        """The ledger is open. `totals`: what all runs before decided."""
        self.describe(generation=generation, at_ms=time.time_ns() // 1_000_000, totals=totals)
        self._tell(lambda exporter: exporter.started(self._run))

    def record(self, record: Record) -> None:
        """Take what was measured: by the delivery just before `batch`, in its thread, or by Spark."""
        if isinstance(record, DeliveryRecord):
            self._record = record
        else:
            self._tell(lambda exporter: exporter.steps(record))

    def batch(self, progress: BatchProgress, totals: SinkTotals) -> None:
        """A batch was delivered. `totals`: what was decided so far."""
        found, self._record = self._record, None
        record = found if found is not None and found.batch_id == progress.batch_id else None
        batch = BatchEnded(progress=progress, record=record, totals=totals)
        self._tell(lambda exporter: exporter.batch(batch))

    def watch(self, busy: Busy) -> None:
        """Look every few seconds whether the run stalls, for exporters that care, in a daemon thread that ends with the run."""
        watching = [exporter for exporter in self._exporters if isinstance(exporter, WatchesStalls) and exporter.watches]
        if watching:
            threading.Thread(target=self._watch, args=(busy, watching), name="penstock-stall-watch", daemon=True).start()

    def ended(self, error: BaseException | None, *, is_stop: bool = False) -> None:
        """The run has ended, by `error` or without one, perhaps as it was asked to (`is_stop`).

        Sends what is left within FLUSH_S; further calls do nothing.
        """
        with self._ending:
            if self._is_over.is_set():
                return
            self._is_over.set()
        if not self._exporters:
            return
        end = replace(_end_of(error), is_stop=is_stop)
        self._tell(lambda exporter: exporter.ended(end))
        until_s = time.monotonic() + FLUSH_S
        closing = [threading.Thread(target=self._close, args=(each, until_s), daemon=True) for each in self._exporters]
        for thread in closing:
            thread.start()
        for thread in closing:
            thread.join(max(0.0, until_s + _TO_COUNT_S - time.monotonic()))

    def _close(self, exporter: Exporter, until_s: float) -> None:
        try:
            exporter.close(until_s=until_s)
        except Exception as error:  # noqa: BLE001 - see `_tell`
            _report(exporter, error)

    def _tell(self, tell: Callable[[Exporter], None]) -> None:
        for exporter in self._exporters:
            try:
                tell(exporter)
            except Exception as error:  # noqa: BLE001 - what is told to others must not fail a batch
                _report(exporter, error)

    def _watch(self, busy: Busy, watching: Sequence[WatchesStalls]) -> None:
        while not self._is_over.wait(_LOOK_S):
            try:
                is_busy, batch_id = busy()
                for each in watching:
                    if is_busy:
                        each.busy(batch_id=batch_id)
                    else:
                        each.idle()
            except Exception as error:  # noqa: BLE001 - as above: Spark may be gone
                _log.debug("Whether the run stalls is not known: %s", scrub(str(error)))


def _end_of(error: BaseException | None) -> RunEnded:
    now_ms = time.time_ns() // 1_000_000
    if error is None:
        return RunEnded(at_ms=now_ms)
    if isinstance(error, PenstockError):
        kind, code = type(error).__name__, error.exit_code
        return RunEnded(at_ms=now_ms, error=kind, exit_code=code, message=scrub(error.message), remedy=scrub(error.remedy))
    return RunEnded(at_ms=now_ms, error=type(error).__name__, exit_code=1, message=scrub(str(error)))


def _report(exporter: Exporter, error: Exception) -> None:
    _log.warning("%s failed with %s: %s", type(exporter).__name__, type(error).__name__, scrub(str(error)))
