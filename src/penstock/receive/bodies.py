"""How much memory the bodies of all requests take that are not answered yet. Not for several threads."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from penstock.errors import Retryable


class Bodies:
    """Bytes that were read of requests, `most_bytes` of all together."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes, self._bytes = most_bytes, 0

    @contextmanager
    def counted(self) -> Iterator[Callable[[int], None]]:
        """Give what counts bytes of one request, which are let go at the end; it raises Retryable for one byte too many."""
        size = 0

        def count(more: int) -> None:
            nonlocal size
            if self._bytes + more > self._most_bytes:
                raise Retryable(
                    f"The bodies of all requests have {self._bytes} bytes already.", remedy="Send it again in a moment."
                )
            size += more
            self._bytes += more

        try:
            yield count
        finally:
            self._bytes -= size
