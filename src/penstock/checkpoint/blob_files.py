"""Access to a checkpoint's files in an object store or HDFS."""

from collections.abc import Mapping

from penstock.blob import BlobStore


class BlobFiles:
    """`Files` below the root of a store. A folder is a key prefix; nothing is cached between calls.

    `names` and `sizes` cost one listing, other methods one request, except `read`.
    """

    def __init__(self, store: BlobStore) -> None:
        self._store = store

    @property
    def location(self) -> str:
        return self._store.url

    def names(self, folder: str) -> tuple[str, ...]:
        return tuple(self.sizes(folder))

    def sizes(self, folder: str) -> Mapping[str, int | None]:
        start = f"{folder}/" if folder else ""
        return {
            found.key[len(start) :].rstrip("/"): None if found.key.endswith("/") else found.size_bytes
            for found in self._store.children(start)
        }

    def size_bytes(self, name: str) -> int | None:
        found = self._store.head(name)
        return None if found is None else found.size_bytes

    def modified_ms(self, name: str) -> int | None:
        found = self._store.head(name)
        return None if found is None else found.modified_ms

    def read(self, name: str, *, start: int = 0, size_bytes: int | None = None) -> bytes | None:
        """Read a whole file with one request, a part with two: stores refuse a range beyond the end, so the size comes first."""
        if start == 0 and size_bytes is None:
            return self._store.get(name)
        whole = self.size_bytes(name)
        if whole is None:
            return None
        length = min(whole - start, whole if size_bytes is None else size_bytes)
        try:
            return self._store.read(name, start=start, length=length) if length > 0 else b""
        except FileNotFoundError:  # deleted after its size was read
            return None

    def delete(self, name: str) -> None:
        self._store.delete(name)
