"""What publishing a batch took: milliseconds, and requests to places that bill them. The next decision records it."""

from collections.abc import Callable, Iterable

from penstock.protocols import requesting, requests_since, requests_so_far


class PublicationMeter:
    """Measures one batch after the other. `counts_requests` is False where two batches run side by side and would mix theirs."""

    def __init__(self, places: Iterable[object], now_ms: Callable[[], int], *, counts_requests: bool) -> None:
        self._places, self._now_ms = requesting(places), now_ms
        self.counts_requests = counts_requests
        self.publish_ms: int | None = None
        self.requests: int | None = None
        self._requests_before: int | None = None
        self._began_ms = 0

    def start(self) -> None:
        """Called before a batch is decided."""
        self._requests_before, self._began_ms = requests_so_far(self._places), self._now_ms()

    def decided(self) -> int:
        """Called when it is decided; returns the milliseconds since `start`."""
        began_ms, self._began_ms = self._began_ms, self._now_ms()
        return self._began_ms - began_ms

    def published(self) -> int:
        """Called when it is published everywhere; returns the milliseconds since `decided`."""
        self.publish_ms = self._now_ms() - self._began_ms
        return self.publish_ms

    def ended(self) -> None:
        """Called when nothing of the batch is left to do."""
        self.requests = requests_since(self._requests_before, self._places) if self.counts_requests else None
