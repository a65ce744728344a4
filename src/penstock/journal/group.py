"""One fsync for many waiting clients: a thread takes what has arrived, makes it durable as a group, and answers all of it.

While one group is forced to the disk the next one gathers, so groups grow with the load; `linger_s` lets them gather longer.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace

from penstock.errors import Failed, LedgerMismatch, PenstockError, Retryable
from penstock.journal.event import Event, Receipt
from penstock.journal.frame import size_of
from penstock.journal.journal import Journal, JournalFull

_log = logging.getLogger(__name__)

Receipts = tuple[Receipt, ...]


class TooManyWaiting(Retryable):
    """More bytes wait for the disk than may: the client is to come back later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLimits:
    """`group_bytes`: what one group may have; `waiting_bytes`: what may wait in all; `linger_s`: how long a group gathers.

    `look_s`: how often released segments are removed.
    """

    group_bytes: int = 8 << 20
    waiting_bytes: int = 64 << 20
    linger_s: float = 0.0
    look_s: float = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCounts:
    """Since the start: groups that became durable, events in them, and events that were refused. `waiting_bytes` wait now."""

    groups: int = 0
    events: int = 0
    refused: int = 0
    waiting_bytes: int = 0


class GroupWriter:
    """Appends for many threads at once. `open_journal` opens the journal, now and again after a disk was full."""

    def __init__(self, open_journal: Callable[[], Journal], limits: GroupLimits | None = None) -> None:
        self._open_journal, self._limits = open_journal, limits or GroupLimits()
        self._journal: Journal | None = open_journal()
        self._waiting = deque[tuple[Sequence[Event], int, Future[Receipts]]]()
        self._waiting_bytes = 0
        self._next_look_s = 0.0
        self._changed = threading.Condition()
        self._is_closing = False
        self._failure: PenstockError | None = None
        self._counts = GroupCounts()
        self._thread = threading.Thread(target=self._run, name="penstock-journal", daemon=True)
        self._thread.start()

    @property
    def failure(self) -> PenstockError | None:
        """What ended this writer, None while it takes events."""
        return self._failure

    @property
    def counts(self) -> GroupCounts:
        """What happened so far."""
        return replace(self._counts, waiting_bytes=self._waiting_bytes)

    def submit(self, events: Sequence[Event]) -> "Future[Receipts]":
        """Let `events` be appended, all or none. The future has their receipts once they are durable.

        Raises TooManyWaiting at once; the future raises what `Journal.append` and `Journal.commit` raise.
        """
        size = sum(map(size_of, events))
        future: Future[Receipts] = Future()
        with self._changed:
            if self._failure is not None:
                raise self._failure
            if self._is_closing:
                raise Retryable("The receiver is stopping.", remedy="Send it again in a moment.")
            if self._waiting and self._waiting_bytes + size > self._limits.waiting_bytes:
                self._counts = replace(self._counts, refused=self._counts.refused + len(events))
                raise TooManyWaiting(
                    f"{self._waiting_bytes} bytes of events wait for the disk already.", remedy="Send it again in a moment."
                )
            self._waiting.append((events, size, future))
            self._waiting_bytes += size
            self._changed.notify()
        return future

    def close(self) -> None:
        """Take nothing more, make durable and answer what waits, and release the journal."""
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        self._thread.join()

    # --- the thread

    def _run(self) -> None:
        try:
            while (group := self._gathered()) is not None:
                self._handle(group)
        finally:
            self._drop()

    def _gathered(self) -> "list[tuple[Sequence[Event], Future[Receipts]]] | None":
        """Return the next group, an empty one when it is time to look at readers, None at the end."""
        limits = self._limits
        with self._changed:
            if not self._waiting and not self._is_closing:
                self._changed.wait(limits.look_s)
            if self._waiting and limits.linger_s and not self._is_closing and self._waiting_bytes < limits.group_bytes:
                self._changed.wait_for(
                    lambda: self._is_closing or self._waiting_bytes >= limits.group_bytes, timeout=limits.linger_s
                )
            if not self._waiting:
                return None if self._is_closing else []
            group: list[tuple[Sequence[Event], Future[Receipts]]] = []
            taken = 0
            while self._waiting and (not group or taken + self._waiting[0][1] <= limits.group_bytes):
                events, size, future = self._waiting.popleft()
                taken += size
                if future.set_running_or_notify_cancel():  # a client that is gone meanwhile sends it again
                    group.append((events, future))
            self._waiting_bytes -= taken
        return group

    def _handle(self, group: "list[tuple[Sequence[Event], Future[Receipts]]]") -> None:
        answers: list[tuple[Future[Receipts], Receipts]] = []
        try:
            journal = self._opened()
            for events, future in group:
                try:
                    answers.append((future, journal.append(events)))
                except Failed:
                    raise
                except PenstockError as refused:
                    self._count(refused=len(events))
                    future.set_exception(refused)
            journal.commit()
        except Exception as error:  # noqa: BLE001 - whoever waits gets it, and this writer ends with it
            self._fail(error if isinstance(error, PenstockError) else _unexpected(error), [future for _, future in group])
            return
        if answers:
            self._count(groups=1, events=sum(len(receipts) for _, receipts in answers))
        for future, receipts in answers:
            future.set_result(receipts)
        self._look_at_readers(journal)

    def _count(self, *, groups: int = 0, events: int = 0, refused: int = 0) -> None:
        with self._changed:
            now = self._counts
            self._counts = GroupCounts(groups=now.groups + groups, events=now.events + events, refused=now.refused + refused)

    def _look_at_readers(self, journal: Journal) -> None:
        now_s = time.monotonic()
        if now_s < self._next_look_s:
            return
        self._next_look_s = now_s + self._limits.look_s
        try:
            self._remove_released(journal)
        except PenstockError as error:
            self._fail(error, [])

    def _remove_released(self, journal: Journal) -> None:
        try:
            journal.remove_released()
        except LedgerMismatch as unreadable:
            _log.warning("no segment is removed: %s", unreadable)

    def _opened(self) -> Journal:
        if self._journal is None:
            self._journal = self._open_journal()
            self._remove_released(self._journal)  # after a full disk: it may need the room
        return self._journal

    def _fail(self, error: PenstockError, futures: "Sequence[Future[Receipts]]") -> None:
        """Answer a group with the error that its journal ended with. After a full disk the next group opens it again."""
        self._drop()
        if not isinstance(error, JournalFull):
            with self._changed:
                self._failure = error
                futures = [*futures, *(future for _, _, future in self._waiting)]
                self._waiting.clear()
        for future in futures:
            if not future.done():
                future.set_exception(error)

    def _drop(self) -> None:
        if self._journal is not None:
            self._journal.close()
            self._journal = None


def _unexpected(error: Exception) -> Failed:
    return Failed(
        f"The journal could not be written: {type(error).__name__}: {error}.", remedy="Mend the disk, then start again."
    )
