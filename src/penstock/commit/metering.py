"""What publishing a batch took: milliseconds, and requests to places that bill them. The next decision records it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from penstock.protocols import requesting, requests_since, requests_so_far


@dataclass(frozen=True, slots=True)
class Started:
    """A batch's decision began: requests that were sent before it, and when, by the clock for people."""

    requests: int | None
    at_ms: int


class PublicationMeter:
    """Measures one batch after the other. `counts_requests` is False where two batches run side by side and would mix theirs."""

    def __init__(self, places: Iterable[object], now_ms: Callable[[], int], *, counts_requests: bool) -> None:
        self._places, self._now_ms = requesting(places), now_ms
        self.counts_requests = counts_requests
        self.publish_ms: int | None = None
        self.requests: int | None = None

    def start(self) -> Started:
        """Called before a batch is decided."""
        return Started(requests_so_far(self._places), self._now_ms())

    def published(self, *, decided_ms: int) -> int:
        """Called when a batch is published everywhere; returns the milliseconds since it was decided."""
        self.publish_ms = self._now_ms() - decided_ms
        return self.publish_ms

    def ended(self, started: Started) -> None:
        """Called when nothing of the batch is left to do."""
        self.requests = requests_since(started.requests, self._places) if self.counts_requests else None
