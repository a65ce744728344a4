"""A snapshot of a table as `verify` reads it: the marker and the files of one version, whatever is committed meanwhile."""

import os
from collections.abc import Container, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from itertools import count
from typing import BinaryIO

import pyarrow as pa

from penstock.core.high_water_mark import HighWaterMark
from penstock.core.model import ONLY_ACCOUNT, AccountName, PipelineName, Position, RowDigest, SinkName, Totals
from penstock.errors import PenstockError
from penstock.sink.lake.log import TableFile, TableSnapshot
from penstock.sink.lake.reader import FileReader, open_file
from penstock.sink.lake.staging import piece_name
from penstock.sink.lake.write_mode import TableContent
from penstock.sink.parquet.account import Area, StoredFile
from penstock.sink.table.marker import TableMarker
from penstock.sink.table.target import NotStoredError


def counted_marker(
    content: TableContent, marker: HighWaterMark, *, pipeline: PipelineName, sink: SinkName, table: str
) -> TableMarker:
    """Return what a table's marker counts, as that of a database has it."""
    return TableMarker(
        pipeline=pipeline,
        sink=sink,
        table_name=table,
        write=content.write,
        ledger_id=marker.ledger_id,
        position=marker.position,
        decided=content.decided,
        after=content.shown,
    )


class SnapshotFiles:
    """The files of a snapshot under the names of pieces, which tell the partition values.

    Every listed file has a name of its own, even if several directories have a file of one name, or the table lists a file
    several times: readers read all of them.
    """

    def __init__(self, snapshot: TableSnapshot, area: Area) -> None:
        self._snapshot, self._area = snapshot, area

    @cached_property
    def by_name(self) -> Mapping[str, TableFile]:
        found: dict[str, TableFile] = {}
        for file in self._snapshot.files():
            found[_unused(piece_name(file.path, file.values), found)] = file
        return found

    def files(self) -> Iterator[StoredFile]:
        for name, file in self.by_name.items():
            yield StoredFile(name=name, size_bytes=file.size_bytes, field_ids=file.field_ids)

    def open(self, name: str) -> BinaryIO:
        return open_file(self._area, self.by_name[name])


def _unused(name: str, taken: Container[str]) -> str:
    """Return the name, with a number before its last part if it is taken."""
    directories, slash, base = name.rpartition("/")
    others = (f"{directories}{slash}{number}-{base}" for number in count(2))
    return name if name not in taken else next(other for other in others if other not in taken)


class VerifiedTable:
    """One version of the table, which `verify_accounts` compares with the ledger."""

    def __init__(self, snapshot: TableSnapshot, area: Area, *, pipeline: PipelineName, sink: SinkName) -> None:
        self._snapshot, self._pipeline, self._sink = snapshot, pipeline, sink
        self._files, self._area = SnapshotFiles(snapshot, area), area

    @property
    def name(self) -> AccountName:
        return ONLY_ACCOUNT

    @property
    def area(self) -> SnapshotFiles:
        return self._files

    def marked_at(self) -> Position | None:
        marker = self._snapshot.marker(self._pipeline, self._sink)
        return None if marker is None else marker.position

    def content(self, schema: str, row_digest: RowDigest) -> Totals:
        """Return the rows of all files, with their digest. Raises NotStoredError for a file that does not hold such rows."""
        reader = FileReader(area=self._area, schema=schema, row_digest=row_digest)

        def look(file: TableFile) -> Totals:
            try:
                return reader.content(file)
            except (pa.ArrowException, PenstockError, OSError, ValueError) as cause:
                reason = str(cause).split("\n", maxsplit=1)[0]
                raise NotStoredError(f"{file.path} cannot be read as rows of this sink: {reason}") from cause

        with ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="penstock-verify") as pool:
            return sum(pool.map(look, self._files.by_name.values()), Totals())

    def lost_files(self, newest: TableSnapshot) -> bool:
        """Return whether `newest` lacks files of this version: a vacuum may have removed them while they were read."""
        there = {file.path for file in newest.files()}
        return any(file.path not in there for file in self._files.by_name.values())
