"""A snapshot of a Delta table as `verify` reads it: the marker and the files of one version, whatever is committed meanwhile."""

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import BinaryIO
from urllib.parse import unquote

from penstock.core.model import ONLY_ACCOUNT, AccountName, PipelineName, Position, SinkName
from penstock.sink.delta.log import Snapshot, TableFile
from penstock.sink.delta.staging import piece_name
from penstock.sink.parquet.account import Area, StoredFile


class SnapshotFiles:
    """The files of a snapshot under the names of pieces, which tell the partition values."""

    def __init__(self, snapshot: Snapshot, area: Area) -> None:
        self._snapshot, self._area = snapshot, area

    @cached_property
    def by_name(self) -> Mapping[str, TableFile]:
        return {piece_name(file.path, file.values): file for file in self._snapshot.files()}

    def files(self) -> Iterator[StoredFile]:
        for name, file in self.by_name.items():
            yield StoredFile(name=name, size_bytes=file.size_bytes)

    def open(self, name: str) -> BinaryIO:
        """Open a file; other writers may have quoted its path, as Delta says."""
        path = self.by_name[name].path
        try:
            return self._area.open(path)
        except FileNotFoundError:
            return self._area.open(unquote(path))


class VerifiedTable:
    """One version of the table, which `verify_accounts` compares with the ledger."""

    def __init__(self, snapshot: Snapshot, area: Area, *, pipeline: PipelineName, sink: SinkName) -> None:
        self._snapshot, self._pipeline, self._sink = snapshot, pipeline, sink
        self._files = SnapshotFiles(snapshot, area)

    @property
    def name(self) -> AccountName:
        return ONLY_ACCOUNT

    @property
    def area(self) -> SnapshotFiles:
        return self._files

    def marked_at(self) -> Position | None:
        marker = self._snapshot.marker(self._pipeline, self._sink)
        return None if marker is None else marker.position

    def lost_files(self, newest: Snapshot) -> bool:
        """Return whether `newest` lacks files of this version: a vacuum may have removed them while they were read."""
        there = {file.path for file in newest.files()}
        return any(file.path not in there for file in self._files.by_name.values())
