"""A `ConditionalStore` in memory, for tests and the simulator. Its content ends with the process."""

from bisect import bisect_left, insort
from collections.abc import Iterator
from threading import Lock


class MemoryStore:
    """A `ConditionalStore` that honours every condition. All users of one object share its content."""

    location = "memory"

    def __init__(self) -> None:
        self._lock = Lock()
        self._objects: dict[str, bytes] = {}
        self._sorted: list[str] = []

    def put_if_absent(self, key: str, data: bytes) -> bool:
        with self._lock:
            if key in self._objects:
                return False
            self._set(key, data)
            return True

    def get(self, key: str) -> bytes | None:
        return self._objects.get(key)

    def put(self, key: str, data: bytes) -> None:
        with self._lock:
            self._set(key, data)

    def delete(self, key: str) -> None:
        with self._lock:
            if self._objects.pop(key, None) is not None:
                del self._sorted[bisect_left(self._sorted, key)]

    def keys(self, folder: str) -> Iterator[str]:
        with self._lock:
            start = bisect_left(self._sorted, folder)
            end = bisect_left(self._sorted, folder + "\x7f")
            found = self._sorted[start:end]
        return iter(found)

    def sweep(self) -> None:
        """Do nothing: puts leave nothing behind."""

    def close(self) -> None:
        """Do nothing: nothing is open."""

    def _set(self, key: str, data: bytes) -> None:
        if key not in self._objects:
            insort(self._sorted, key)
        self._objects[key] = data
