"""`on_event`: tells targets that a run failed, was fenced, stalls, or delivers again.

Each target gets one event for a failure, until batches are delivered again; so a supervisor's restarts do not repeat it. Which
events a target took stands in a note in the pipeline's home, written when it has taken them.
"""

import os
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tenacity import RetryCallState, Retrying, retry_if_exception_type, wait_random_exponential

from penstock.core.model import new_nonce
from penstock.errors import Fenced, PenstockError, Retryable
from penstock.observe.batch_record import SparkRecord
from penstock.observe.export.event import Event
from penstock.observe.export.facts import BatchEnded, RunEnded, RunStarted
from penstock.observe.export.notify import Notify, notify_of
from penstock.observe.export.queue import ExportQueue, Patience
from penstock.observe.export.stall import StallWatch
from penstock.observe.note import read_note, write_note
from penstock.spec.export import EventName, EventTarget
from penstock.support.secret import scrub

_KIND = "sent_events"
_CAPACITY = 100
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SentEvents:
    """The cause of the newest failure or stall that each target took, without those whose end it took since."""

    causes: Mapping[str, str] = field(default_factory=dict)


class Events:
    """The exporter behind `on_event`. `home`: where it is noted which events were taken. `directory`: where commands run."""

    def __init__(self, pipeline: str, targets: Mapping[str, EventTarget], *, home: str, directory: Path | None) -> None:
        self._pipeline = pipeline
        self._noted = _NotedEvents(home)
        self._targets = [_Target(name, each, self._noted, notify_of(each, directory=directory)) for name, each in targets.items()]
        self._owner = f"{socket.gethostname()} process {os.getpid()}"
        self._run: RunStarted | None = None

    @property
    def watches(self) -> bool:
        """Whether a target wants to hear of a stall, so that somebody has to look whether the run is busy."""
        return any(target.wants("stalled") for target in self._targets)

    def lost(self) -> Mapping[str, Callable[[], int]]:
        """Return for each target what counts the events that it did not get."""
        return {target.name: target.count_lost for target in self._targets}

    def started(self, run: RunStarted) -> None:
        self._run = run
        self._begin()

    def batch(self, batch: BatchEnded) -> None:
        progress = batch.progress
        if progress.recovered:
            text = f"batch {progress.batch_id}, which an earlier run decided, is published now"
            self._recover(text, batch_id=progress.batch_id, always=True)
        elif not progress.already:
            self._recover(f"batch {progress.batch_id} is delivered", batch_id=progress.batch_id, always=False)
        for target in self._targets:
            target.watch.moved()

    def steps(self, record: SparkRecord) -> None:
        """Nothing: `batch` is called for each batch, too."""

    def idle(self) -> None:
        """The run has nothing to do at present."""
        for target in self._targets:
            target.watch.idle()

    def busy(self, *, batch_id: int | None) -> None:
        """The run is busy, with batch `batch_id` or between two batches: tell those for whom that goes on for too long."""
        for target in self._targets:
            stalled_s = target.watch.stalled_s()
            if stalled_s is None:
                continue
            what = "is busy without a batch" if batch_id is None else f"works on batch {batch_id}"
            text = f"{self._pipeline} {what} for {stalled_s / 60:.0f} minutes."
            target.tell(self._event("stalled", text, cause="stalled", batch_id=batch_id))

    def ended(self, end: RunEnded) -> None:
        if end.error is None:
            if self._run is not None and self._run.is_bounded and not end.is_stop:
                self._recover("a run ended without an error", always=False)
            return
        if self._run is None:
            self._begin()
        is_fenced = end.exit_code == Fenced.exit_code
        text = f"A run of {self._pipeline} ended with {end.error}, exit code {end.exit_code}."
        if is_fenced:
            text = f"A run of {self._pipeline} was stopped: a newer run has the pipeline."
        event = replace(
            self._event("fenced" if is_fenced else "failed", text, cause="" if is_fenced else end.error),
            error=end.error,
            exit_code=end.exit_code,
            message=scrub(end.message),
            remedy=scrub(end.remedy),
        )
        for target in self._targets:
            target.tell(event)

    def close(self, *, until_s: float) -> None:
        for target in self._targets:
            target.queue.end_run()
        for target in self._targets:
            target.queue.close(until_s=until_s)
        for target in self._targets:
            target.give_up()

    def _begin(self) -> None:
        self._noted.read()
        for target in self._targets:
            target.begin()

    def _recover(self, what: str, *, always: bool, batch_id: int | None = None) -> None:
        """Tell that `what` happened: everybody, or with `always` false those that know of a failure."""
        for target in self._targets:
            if always or target.cause is not None:
                target.tell(self._event("recovered", f"{self._pipeline} delivers again: {what}.", batch_id=batch_id))

    def _event(self, name: EventName, text: str, *, cause: str = "", batch_id: int | None = None) -> Event:
        return Event(
            event_id=new_nonce(),
            name=name,
            at_ms=time.time_ns() // 1_000_000,
            pipeline=self._pipeline,
            text=text,
            owner=self._owner,
            generation=None if self._run is None else self._run.generation,
            batch_id=batch_id,
            cause=cause,
        )


class _NotedEvents:
    """Which events the targets took, in a note in the pipeline's home. The targets' threads write it."""

    def __init__(self, home: str) -> None:
        self._home, self._turn = home, threading.Lock()
        self._causes = dict[str, str]()
        self.read()

    def read(self) -> None:
        """Take what is noted: other processes write it too, a supervisor and a driver that this one replaces."""
        found = read_note(self._home, _KIND, SentEvents)
        self._causes = {} if found is None else dict(found.causes)

    def cause(self, target: str) -> str | None:
        return self._causes.get(target)

    def note(self, target: str, cause: str | None) -> None:
        with self._turn:
            self.read()
            if self._causes.get(target) == cause:
                return
            self._causes.pop(target, None)
            if cause is not None:
                self._causes[target] = cause
            write_note(self._home, _KIND, SentEvents(causes=self._causes))


class _Target:
    """One target: its queue, and the cause of the failure or stall that it knows of, or is to hear of."""

    def __init__(self, name: str, settings: EventTarget, noted: _NotedEvents, notify: Notify) -> None:
        self.name, self._settings, self._noted, self._notify = name, settings, noted, notify
        self.cause = noted.cause(name)
        self.watch = StallWatch(settings.stalled_after / 1000)
        self.queue = ExportQueue[Event](f"on_event.{name}", self._send, capacity=_CAPACITY)

    def begin(self) -> None:
        """The run begins, perhaps hours after this was made: until then a standby waits for its turn."""
        self.cause = self._noted.cause(self.name)
        self.watch.moved()

    def count_lost(self) -> int:
        """Return how many events the target did not get."""
        return self.queue.lost

    def give_up(self) -> None:
        """End what is still being sent: nobody would end it once this process is gone."""
        self._notify.give_up()

    def wants(self, event: EventName) -> bool:
        return event in self._settings.events

    def tell(self, event: Event) -> None:
        """Send an event that the target wants, unless it is a failure that the target knows of."""
        if event.name in {"failed", "stalled"}:
            if self.cause == event.cause:
                return
            self.cause = event.cause if self.wants(event.name) else self.cause
        elif event.name == "recovered":
            self.cause = None
            if not self.wants(event.name):
                self._noted.note(self.name, None)
        if self.wants(event.name):
            self.queue.put(event if self._settings.with_message else event.without_message())

    def _send(self, events: Sequence[Event], patience: Patience) -> None:
        """Send each event, trying again where that can help. Raises the error of the newest one that was not taken."""
        failure: PenstockError | None = None
        for event in events:
            try:
                self._retrying(patience)(self._notify, event)
            except PenstockError as error:
                failure = error
                continue
            if event.name in {"failed", "stalled", "recovered"}:
                self._noted.note(self.name, event.cause or None)
        if failure is not None:
            raise failure

    def _retrying(self, patience: Patience) -> Retrying:
        limit_s = self._settings.retry_timeout / 1000

        def is_last(state: RetryCallState) -> bool:
            return patience.is_over or max(state.seconds_since_start or 0.0, state.idle_for) >= limit_s

        return Retrying(
            stop=is_last,
            wait=wait_random_exponential(multiplier=_FIRST_PAUSE_S, max=_LONGEST_PAUSE_S),
            retry=retry_if_exception_type(Retryable),
            sleep=patience.pause,
            reraise=True,
        )
