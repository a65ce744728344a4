"""The budget for inline files: how many bytes of an attempt may travel in the decision instead of being staged."""

from threading import Lock

INLINE_LIMIT_BYTES = 100 * 1024
"""Per attempt, however many files it has, as for the spool. A decision holds up to this much for each of its tasks."""


class Allowance:
    """Bytes left for inline files of one attempt. Shared by all threads that finish files of it."""

    def __init__(self, limit_bytes: int) -> None:
        self._left_bytes = limit_bytes
        self._lock = Lock()

    def take(self, size_bytes: int) -> bool:
        """Spend `size_bytes` if they fit; return whether they did."""
        with self._lock:
            if size_bytes > self._left_bytes:
                return False
            self._left_bytes -= size_bytes
            return True
