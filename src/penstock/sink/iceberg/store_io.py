"""`StoreFileIO` reads and writes a table's metadata files in a store, with the client that writes the data files.

So a table can be in every store that an account can, with the same options and credentials. What was put is durable and visible.
"""

import io
import json
from functools import cache
from typing import Any, Final

from pyiceberg.io import FileIO, InputFile, OutputFile
from pyiceberg.typedef import EMPTY_DICT, Properties

from penstock.blob import BlobStore, open_store

ROOT: Final = "penstock.location"
"""The property with the table's location, with which the location of every file begins."""
STORE: Final = "penstock.store"
"""The property with the same place as a URL for the store's client."""
OPTIONS: Final = "penstock.options"
"""The property with the store's options, as JSON."""

_TAG: Final = "iceberg"


class StoreFileIO(FileIO):
    """Files below one location. The library makes one for each table that it loads."""

    def __init__(self, properties: Properties = EMPTY_DICT) -> None:
        super().__init__(properties)
        self._root = f"{properties[ROOT]}/"
        self._store = _opened(properties[STORE], properties[OPTIONS])

    def new_input(self, location: str) -> "StoredInput":
        """Return the file at `location`, which may be missing."""
        return StoredInput(location, self._store, self._key(location))

    def new_output(self, location: str) -> "StoredOutput":
        """Return the file at `location`, not yet created."""
        return StoredOutput(location, self._store, self._key(location))

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Delete a file, unless it is gone."""
        self._store.delete(self._key(location if isinstance(location, str) else location.location))

    def _key(self, location: str) -> str:
        if not location.startswith(self._root):
            raise ValueError(f"{location} is outside of the table, which is at {self._root}")
        return location.removeprefix(self._root)


class StoredInput(InputFile):
    """One object, which is read whole: metadata is small."""

    def __init__(self, location: str, store: BlobStore, key: str) -> None:
        super().__init__(location)
        self._store, self._key = store, key

    def __len__(self) -> int:
        found = self._store.head(self._key)
        if found is None:
            raise FileNotFoundError(self.location)
        return found.size_bytes

    def exists(self) -> bool:
        return self._store.head(self._key) is not None

    def open(self, seekable: bool = True) -> Any:  # noqa: ARG002, FBT001, FBT002 - the library's signature
        """Open a stream of the content. Raises FileNotFoundError."""
        data = self._store.get(self._key)
        if data is None:
            raise FileNotFoundError(self.location)
        return io.BytesIO(data)


class StoredOutput(OutputFile):
    """One object, which is put when its stream is closed."""

    def __init__(self, location: str, store: BlobStore, key: str) -> None:
        super().__init__(location)
        self._store, self._key = store, key

    def __len__(self) -> int:
        return len(self.to_input_file())

    def exists(self) -> bool:
        return self.to_input_file().exists()

    def to_input_file(self) -> StoredInput:
        return StoredInput(self.location, self._store, self._key)

    def create(self, overwrite: bool = False) -> Any:  # noqa: FBT001, FBT002 - the library's signature
        """Open a stream that puts the object once it is closed. Raises FileExistsError unless `overwrite`."""
        if not overwrite and self.exists():
            raise FileExistsError(self.location)
        return _PutStream(self._store, self._key)


class _PutStream(io.BytesIO):
    def __init__(self, store: BlobStore, key: str) -> None:
        super().__init__()
        self._store, self._key = store, key

    def close(self) -> None:
        if not self.closed:
            self._store.put(self._key, self.getvalue(), tag=_TAG)
        super().close()

    def __exit__(self, kind: object, *_: object) -> None:
        """Put the object, unless writing it failed."""
        if kind is None:
            self.close()
        else:
            super().close()


@cache
def _opened(url: str, options: str) -> BlobStore:
    return open_store(url, options=json.loads(options))
