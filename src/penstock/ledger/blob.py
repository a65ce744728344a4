"""A `ConditionalStore` in a bucket, a container or an HDFS directory."""

from collections.abc import Iterator, Mapping

from penstock.blob import BlobStore, RequestsEach
from penstock.blob.base_store import requests_to
from penstock.core.model import new_nonce

_OWN = ("entries/", "floor/", "prove/", "hint")
"""Prefixes of the ledger's keys. Anything else below the root is not the ledger's: an account, or an upload in progress."""


class BlobLedgerStore:
    """A `ConditionalStore` over a `BlobStore`."""

    def __init__(self, store: BlobStore) -> None:
        self._store = store

    @property
    def location(self) -> str:
        return self._store.url

    @property
    def requests_each(self) -> RequestsEach:
        return self._store.requests_each

    def requests_sent(self) -> Mapping[str, int]:
        return {self.location: requests_to(self.location)}

    def put_if_absent(self, key: str, data: bytes) -> bool:
        return self._store.put_if_absent(key, data, tag=new_nonce())

    def get(self, key: str) -> bytes | None:
        return self._store.get(key)

    def put(self, key: str, data: bytes) -> None:
        self._store.put(key, data, tag=new_nonce())

    def delete(self, key: str) -> None:
        self._store.delete(key)

    def keys(self, folder: str) -> Iterator[str]:
        return (found.key for found in self._store.list(folder))

    def sweep(self) -> None:
        for folder in _OWN:
            for pending in self._store.pending(folder):
                self._store.discard(pending)

    def close(self) -> None:
        """Do nothing: connections belong to the process."""
