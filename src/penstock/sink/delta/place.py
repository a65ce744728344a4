"""Where a Delta table is: what the library needs to open it there, and what Penstock does there by itself."""

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Protocol

from penstock.blob import BlobStore
from penstock.core.faults import FaultPoint
from penstock.core.model import new_nonce
from penstock.errors import PublishFailed, StoreIgnoresConditions
from penstock.sink.parquet.account import Account
from penstock.sink.parquet.directory.account import DirectoryAccount
from penstock.sink.parquet.object.account import ObjectAccount
from penstock.support.filesystem_errors import problem_of
from penstock.support.private_files import io_error, sync_directory, sync_file

SYNC = FaultPoint("deltalog.sync", "The commit is made durable, where the table is a directory.")

_LOG: Final = "_delta_log"
_TEMPORARY: Final = ".penstock-commit-"


class TablePlace(Protocol):
    """One place of a table."""

    @property
    def account(self) -> Account:
        """The place as an account, which stages and shows files there."""
        ...

    @property
    def uri(self) -> str:
        """The table's path or URL, for people."""
        ...

    @property
    def library_uri(self) -> str:
        """The same as the library takes it, together with `storage_options`."""
        ...

    def storage_options(self) -> Mapping[str, str] | None:
        """Return what the library needs to reach it, as it is now: credentials may change."""
        ...

    def prove(self) -> None:
        """Prove that two writers cannot make the same commit. Raises StoreIgnoresConditions, Retryable, Failed."""
        ...

    def modified_ms(self, path: str) -> int:
        """Return when a file was written, in milliseconds of Unix time. Raises FileNotFoundError."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file that no version of the table has, unless it is gone already. Raises OSError, or what a store raises."""
        ...

    def read_log(self, name: str) -> bytes | None:
        """Return a file of the table's log, None if it is not there. Raises OSError, or what a store raises."""
        ...

    def add_to_log(self, name: str, data: bytes) -> bool:
        """Create a file of the table's log unless it is there, whole and not only in part. Return whether it was created.

        `sync` makes its name durable. Raises OSError, or what a store raises, after which it may be there.
        """
        ...

    def sync(self, *, since: int, upto: int) -> None:
        """Make the commits after version `since` up to `upto` durable, if the library did not. Raises PublishFailed."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryPlace:
    """A directory. Commits are hard links, which never replace a file; the library flushes none of them."""

    account: DirectoryAccount

    @property
    def uri(self) -> str:
        return str(self.account.root)

    @property
    def library_uri(self) -> str:
        return self.uri

    def storage_options(self) -> None:
        return None

    def prove(self) -> None:
        """Do nothing: where there are no hard links, the table cannot be created."""

    def modified_ms(self, path: str) -> int:
        return (self.account.root / path).stat().st_mtime_ns // 1_000_000

    def remove(self, path: str) -> None:
        (self.account.root / path).unlink(missing_ok=True)

    def read_log(self, name: str) -> bytes | None:
        try:
            return (self.account.root / _LOG / name).read_bytes()
        except FileNotFoundError:
            return None

    def add_to_log(self, name: str, data: bytes) -> bool:
        log = self.account.root / _LOG
        for left in (one for one in os.listdir(log) if one.startswith(_TEMPORARY)):  # noqa: PTH208 - a Path for each entry takes long
            (log / left).unlink(
                missing_ok=True
            )  # of a driver that died; or of one whose link fails then, so that nothing is lost
        temporary = log / f"{_TEMPORARY}{new_nonce()}"
        try:
            with temporary.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.link(temporary, log / name)
        except FileExistsError:
            return False
        finally:
            temporary.unlink(missing_ok=True)
        return True

    def sync(self, *, since: int, upto: int) -> None:
        log = self.account.root / _LOG
        try:
            with SYNC.around(error=io_error, lost=io_error):
                for version in range(since + 1, upto + 1):
                    with suppress(FileNotFoundError):  # it is in a checkpoint of the log
                        sync_file(f"{log}/{version:020d}.json")
                sync_directory(log)
        except OSError as cause:
            problem = problem_of(cause)
            # no other try by this process: a flush that failed may succeed the next time although nothing was written
            raise PublishFailed(
                f"A commit of the Delta table {self.uri} may not be durable: {problem.reason}.",
                remedy=f"{problem.advice} and start again.",
            ) from cause


@dataclass(frozen=True, slots=True, kw_only=True)
class StorePlace:
    """A bucket with a prefix. Commits are conditional puts; what is put is durable."""

    account: ObjectAccount

    @property
    def uri(self) -> str:
        return self.account.url

    @property
    def library_uri(self) -> str:
        return self._store.place.for_delta

    @property
    def _store(self) -> BlobStore:
        return self.account.store

    def storage_options(self) -> Mapping[str, str]:
        return self._store.for_delta()

    def prove(self) -> None:
        """Put one object twice, on the condition that it is not there. A store that ignores this would lose commits."""
        key = f"_penstock/proof-{new_nonce()}"
        put = [self._store.put_if_absent(key, b"", tag="proof") for _ in range(2)]
        # "it exists" may be the first answer, too: to the client's own repetition
        if put[1] or self._store.head(key) is None:
            raise StoreIgnoresConditions(
                f"{self.uri} let an object be created twice ({put[0]}, {put[1]}), so one commit could replace another.",
                remedy="Use a store that honours If-None-Match.",
            )
        self._store.delete(key)

    def modified_ms(self, path: str) -> int:
        found = self._store.head(path)
        if found is None:
            raise FileNotFoundError(f"{self.uri}/{path}")
        return found.modified_ms or 0

    def remove(self, path: str) -> None:
        self._store.delete(path)

    def read_log(self, name: str) -> bytes | None:
        return self._store.get(f"{_LOG}/{name}")

    def add_to_log(self, name: str, data: bytes) -> bool:
        return self._store.put_if_absent(f"{_LOG}/{name}", data, tag="commit")

    def sync(self, *, since: int, upto: int) -> None:
        """Do nothing: what the store has accepted is durable."""


def place_of(account: DirectoryAccount | ObjectAccount) -> TablePlace:
    """Return the place of a table."""
    return DirectoryPlace(account=account) if isinstance(account, DirectoryAccount) else StorePlace(account=account)
