"""Where an Iceberg table is: its location, its data files as an account, and how the library reads and writes its metadata."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from penstock.blob.url import BlobUrl, parse
from penstock.sink.iceberg.store_io import OPTIONS, ROOT, STORE
from penstock.sink.parquet import directory_account, object_account
from penstock.sink.parquet.directory.account import DirectoryAccount
from penstock.sink.parquet.object.account import ObjectAccount

_IO = "py-io-impl"
_DATA = "data"


class TablePlace(Protocol):
    """One place of a table."""

    @property
    def location(self) -> str:
        """The table's directory as its metadata has it, without a slash at the end."""
        ...

    @property
    def account(self) -> DirectoryAccount | ObjectAccount:
        """The directory of the data files as an account, which stages and shows files there."""
        ...

    def io(self) -> Mapping[str, str]:
        """Return the properties by which the library reads and writes metadata there. They may hold secrets."""
        ...

    def remove(self, path: str) -> None:
        """Remove a data file that no version of the table has, unless it is gone. Raises OSError, or what a store raises."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryPlace:
    """A directory. What is written is flushed before a catalog names it."""

    root: Path

    @property
    def location(self) -> str:
        return f"file://{self.root}"

    @property
    def account(self) -> DirectoryAccount:
        return directory_account(self.root / _DATA)

    def io(self) -> Mapping[str, str]:
        return {_IO: "penstock.sink.iceberg.durable_io.DurableFileIO"}

    def remove(self, path: str) -> None:
        (self.root / _DATA / path).unlink(missing_ok=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class StorePlace:
    """A prefix in a store. The client of the data files also reads and writes the metadata."""

    root: BlobUrl
    options: Mapping[str, Any] = field(repr=False)

    @property
    def location(self) -> str:
        """As readers of Iceberg spell it: `s3://…`, `gs://…`, `hdfs://…`, `abfss://container@account.dfs.core.windows.net/…`."""
        return str(self.root) if self.root.kind == "s3" else self.root.for_hadoop

    @property
    def account(self) -> ObjectAccount:
        return object_account(f"{self.root}/{_DATA}", options=self.options)

    def io(self) -> Mapping[str, str]:
        return {
            _IO: "penstock.sink.iceberg.store_io.StoreFileIO",
            ROOT: self.location,
            STORE: str(self.root),
            OPTIONS: json.dumps(dict(self.options), sort_keys=True),
        }

    def remove(self, path: str) -> None:
        self.account.store.delete(path)


def place_of(url: str, options: Mapping[str, Any]) -> TablePlace:
    """Return the place at `url`: a directory for `file://`, else a store with `options`."""
    if url.startswith("file://"):
        return DirectoryPlace(root=Path(url.removeprefix("file://")))
    return StorePlace(root=parse(url), options=options)
