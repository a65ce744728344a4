"""The part of `penstock check` that tries a store out. It leaves nothing behind."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from penstock.blob.store import BlobStore
from penstock.core.model import Finding, new_nonce
from penstock.errors import DependencyMissing, PenstockError


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreCheck:
    """A `TaskCheck` of a store. It opens the store itself, because a task may lack the client library."""

    subject: str
    reopen: Callable[[], BlobStore] = field(repr=False)
    folder: str

    def findings(self) -> Sequence[Finding]:
        try:
            return [check_store(self.reopen(), subject=self.subject, folder=self.folder)]
        except DependencyMissing as missing:
            return [Finding(subject=self.subject, ok=False, message=str(missing))]


def check_store(store: BlobStore, *, subject: str, folder: str) -> Finding:
    """Return whether objects can be written, created once, listed, read and deleted in a scratch folder."""
    try:
        wrong = _tried(store, f"{folder}check/")
    except PenstockError as error:
        return Finding(subject=subject, ok=False, message=f"{error.message} {error.remedy}")
    return Finding(subject=subject, ok=wrong is None, message=wrong or "can be written, read, listed and deleted from.")


def _tried(store: BlobStore, folder: str) -> str | None:
    key = f"{folder}{new_nonce()}"
    created = store.put_if_absent(key, b"first", tag="check")
    twice = store.put_if_absent(key, b"second", tag="check")
    listed = any(found.key == key for found in store.list(folder))
    data = store.get(key)
    store.delete(key)
    if not created or data != b"first":
        return "what was written is not what is read."
    if twice:
        return "created one object twice: it ignores If-None-Match, so no ledger can be kept there."
    return None if listed else "does not list what was written."
