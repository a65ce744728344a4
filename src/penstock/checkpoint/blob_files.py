"""A checkpoint's files in an object store or HDFS."""

from collections.abc import Mapping

from penstock.blob import BlobStore


class BlobFiles:
    """`Files` below the root of a store. A folder is whatever lies below its name; nothing is remembered between two calls."""

    def __init__(self, store: BlobStore) -> None:
        self._store = store

    @property
    def location(self) -> str:
        """The store's root."""
        return self._store.url

    def names(self, folder: str) -> tuple[str, ...]:
        """One listing of what lies directly there."""
        return tuple(self.sizes(folder))

    def sizes(self, folder: str) -> Mapping[str, int | None]:
        """One listing of what lies directly there."""
        start = f"{folder}/" if folder else ""
        return {
            found.key[len(start) :].rstrip("/"): None if found.key.endswith("/") else found.size_bytes
            for found in self._store.children(start)
        }

    def size_bytes(self, name: str) -> int | None:
        """One look."""
        found = self._store.head(name)
        return None if found is None else found.size_bytes

    def modified_ms(self, name: str) -> int | None:
        """One look."""
        found = self._store.head(name)
        return None if found is None else found.modified_ms

    def read(self, name: str, *, start: int = 0, size_bytes: int | None = None) -> bytes | None:
        """One request for a whole file; for a part of one a look before it, since stores refuse a part beyond the end."""
        if start == 0 and size_bytes is None:
            return self._store.get(name)
        whole = self.size_bytes(name)
        if whole is None:
            return None
        length = min(whole - start, whole if size_bytes is None else size_bytes)
        try:
            return self._store.read(name, start=start, length=length) if length > 0 else b""
        except FileNotFoundError:  # removed in between
            return None

    def delete(self, name: str) -> None:
        """One request."""
        self._store.delete(name)
