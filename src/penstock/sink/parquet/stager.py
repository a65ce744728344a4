"""The task side of the Parquet sink: writes an attempt's rows as files, one or more per account and partition directory."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.model import AccountName, Attempt, Staged
from penstock.sink.parquet.account import Allowance, Upload, UploadArea
from penstock.sink.parquet.combining import Place, groups_of, rows_schema, small_files
from penstock.sink.parquet.encoding import Encodings, choose_encodings
from penstock.sink.parquet.field_ids import with_field_ids
from penstock.sink.parquet.layout import file_name
from penstock.sink.parquet.part_file import PartFile, notes_for, stored_schema
from penstock.sink.parquet.splitting import Chunk, Group, Splitter, WriteSettings, unrouted
from penstock.sink.valid_text import require_valid


@dataclass(frozen=True, slots=True, kw_only=True)
class RowGroup:
    """Rows of one place, to be written as one row group."""

    place: Place
    rows: "pa.Table"
    digest: int


@dataclass(slots=True)
class _Waiting:
    rows: int = 0
    size_bytes: int = 0
    groups: list[Group] = field(default_factory=list)


class Buffer:
    """Collects groups by place. Its user writes what `due` yields after each `add`, and at the end what `rest` yields."""

    def __init__(self, settings: WriteSettings) -> None:
        self._settings = settings
        self._waiting: dict[Place, _Waiting] = {}
        self._held_bytes = 0

    def add(self, group: Group) -> None:
        """Take a group of rows, and a share of the memory that is leased for its chunk."""
        waiting = self._waiting.setdefault((group.account, group.directories), _Waiting())
        waiting.rows += len(group.rows)
        waiting.size_bytes += group.size_bytes
        waiting.groups.append(group)
        self._held_bytes += group.lease.take()

    def due(self) -> Iterator[RowGroup]:
        """Yield row groups that are large enough and, if the buffer exceeds its limit, the largest of the others."""
        rows, size_bytes = self._settings.row_group_rows, self._settings.row_group_bytes
        for place, waiting in list(self._waiting.items()):
            if waiting.rows >= rows or waiting.size_bytes >= size_bytes:
                yield self._take(place)
        if self._held_bytes > self._settings.buffer_bytes:
            yield from self._make_room()

    def rest(self) -> Iterator[RowGroup]:
        for place in list(self._waiting):
            yield self._take(place)

    def _make_room(self) -> Iterator[RowGroup]:
        """Yield the largest row groups until half of the limit is free: freeing less would make small ones at every chunk."""
        for place in sorted(self._waiting, key=lambda place: -self._waiting[place].size_bytes):
            yield self._take(place)
            if self._held_bytes <= self._settings.buffer_bytes // 2:
                return

    def _take(self, place: Place) -> RowGroup:
        waiting = self._waiting.pop(place)
        self._held_bytes -= sum(group.lease.let_go() for group in waiting.groups)
        return RowGroup(
            place=place,
            rows=pa.concat_tables(group.rows for group in waiting.groups),
            digest=sum(group.digest for group in waiting.groups),
        )


CHUNK_ROWS = 1 << 16
CHUNK_BYTES = 16 * 1024 * 1024
_FINISHING = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class ParquetStager:
    """The recipe for stage writers of one Parquet sink."""

    settings: WriteSettings
    areas: Mapping[AccountName, UploadArea]

    def open(self, attempt: Attempt, schema: "pa.Schema") -> "ParquetStageWriter":
        return ParquetStageWriter(self, attempt, schema)

    def refused(self, rows: "pa.RecordBatch", accounts: "pa.StringArray | None") -> Mapping[int, str]:  # noqa: ARG002 - by route
        """Return the rows whose route names no account, each with the reason."""
        if accounts is None:
            return {}
        unknown = pc.invert(pc.is_in(accounts, value_set=pa.array(list(self.settings.accounts), pa.string())))
        places = np.flatnonzero(unknown.to_numpy(zero_copy_only=False)).tolist()
        names = accounts.take(pa.array(places, pa.int64())).to_pylist()
        return {place: unrouted(name, self.settings) for place, name in zip(places, names, strict=True)}

    def combine(self, pieces: Sequence[Staged], attempt: Attempt) -> Sequence[Staged]:
        """Write small files that several tasks staged for one place as one file, which travels in the decision as they would.

        `attempt`: the driver's own. Returns the other pieces as they are. Raises StageFailed, Retryable.
        """
        places = small_files(pieces)
        if not places:
            return pieces
        small = [piece for own in places.values() for piece in own]
        size_bytes = sum(piece.totals.size_bytes for piece in small)
        settings = replace(self.settings, partition_by=(), inline_limit_bytes=size_bytes)  # partition columns are in no file
        writer = replace(self, settings=settings).open(attempt, rows_schema(small[0]))
        try:
            for place, own in places.items():
                writer.append(groups_of(place, own))
            written = writer.finish()
        except BaseException:
            writer.abandon()
            raise
        gone = {piece.name for piece in small}
        return [*(piece for piece in pieces if piece.name not in gone), *written]

    def requests_sent(self) -> Mapping[str, int]:
        return {place: sent for area in self.areas.values() for place, sent in area.requests_sent().items()}


class ParquetStageWriter:
    """Stages the rows of one attempt in bounded memory. Used by one thread; a pool finishes files at the same time."""

    def __init__(self, stager: ParquetStager, attempt: Attempt, schema: "pa.Schema") -> None:
        self._settings = stager.settings
        self._areas = stager.areas
        self._attempt = attempt
        self._splitter = Splitter(stager.settings, schema)
        self._stored = _numbered(stored_schema(self._splitter.data_schema), stager.settings.field_ids)
        self._notes = notes_for(schema, self._splitter.data_schema)
        self._buffer = Buffer(stager.settings)
        self._chunk = _Gathering()
        self._encodings: Encodings | None = None
        self._open: dict[Place, PartFile] = {}
        self._files = 0
        self._allowance = Allowance(stager.settings.inline_limit_bytes)
        self._uploads: list[Upload] = []
        self._finished: list[Future[Staged]] = []
        self._pool = ThreadPoolExecutor(_FINISHING, thread_name_prefix="penstock-stage")

    def write(self, rows: "pa.RecordBatch", *, hashes: "pa.UInt64Array", accounts: "pa.StringArray | None") -> None:
        """Take `rows`. Raises StageFailed: unknown account, text not UTF-8, value without directory, failing store; Retryable."""
        if rows.num_rows == 0:
            return
        require_valid(rows, sink=self._settings.sink)
        self._chunk.add(rows, hashes, accounts)
        if self._chunk.rows >= CHUNK_ROWS or self._chunk.size_bytes >= CHUNK_BYTES:
            self._split()

    def append(self, groups: Iterable[Group]) -> None:
        """Take rows of one place, which are split and hashed already. Raises StageFailed, Retryable."""
        waiting = list[Group]()
        rows, size_bytes = 0, 0
        for group in groups:
            waiting.append(group)
            rows, size_bytes = rows + len(group.rows), size_bytes + group.size_bytes
            if rows >= CHUNK_ROWS or size_bytes >= CHUNK_BYTES:
                self._take_all(waiting)
                waiting, rows, size_bytes = [], 0, 0
        self._take_all(waiting)

    def finish(self) -> Sequence[Staged]:
        """Write the buffered rows, and make files and names durable. Return a piece per file. Raises StageFailed, Retryable."""
        if self._chunk.rows:
            self._split()
        for group in self._buffer.rest():
            file = self._open.pop(group.place, None) or self._name(group.place)
            self._finished.append(self._pool.submit(self._complete, group, file))
        for place in list(self._open):
            self._finish(place)
        staged = [future.result() for future in self._finished]
        self._pool.shutdown()
        for account in dict.fromkeys(piece.account for piece in staged):
            self._areas[account].seal()
        return staged

    def abandon(self) -> None:
        self._pool.shutdown(cancel_futures=True)
        for upload in self._uploads:
            upload.abandon()

    def _split(self) -> None:
        chunk = self._chunk.take()
        self._take(chunk.rows, self._splitter.split(chunk))

    def _take_all(self, groups: Sequence[Group]) -> None:
        if groups:
            self._take(pa.concat_tables(group.rows for group in groups), groups)

    def _take(self, rows: "pa.Table", groups: Sequence[Group]) -> None:
        """Take `rows`, split into `groups`."""
        if self._encodings is None:
            self._encodings = choose_encodings(rows.select(self._stored.names), self._settings.encoding)
        for group in groups:
            self._buffer.add(group)
        for row_group in self._buffer.due():
            self._write(row_group)

    def _write(self, group: RowGroup) -> None:
        file = self._open.pop(group.place, None) or self._begin(*self._name(group.place))
        file.write(group.rows, digest=group.digest)
        self._open[group.place] = file
        if file.size_bytes >= self._settings.target_file_size_bytes:
            self._finish(group.place)
        elif len(self._open) > self._settings.open_files:
            self._finish(next(iter(self._open)))

    def _name(self, place: Place) -> tuple[AccountName, str]:
        account, directories = place
        settings, number = self._settings, self._files
        self._files += 1
        return account, file_name(
            self._attempt,
            number=number,
            owner=settings.owner,
            compression=settings.compression,
            directories=directories,
            prefix=settings.prefix,
        )

    def _begin(self, account: AccountName, name: str) -> PartFile:
        upload = self._areas[account].open(name, allowance=self._allowance)
        self._uploads.append(upload)
        assert self._encodings is not None
        return PartFile(
            upload,
            account=account,
            name=name,
            schema=self._stored,
            compression=self._settings.compression,
            encodings=self._encodings,
            notes=self._notes,
            footer_notes=self._settings.footer_notes,
        )

    def _finish(self, place: Place) -> None:
        file = self._open.pop(place)
        file.close()
        self._finished.append(self._pool.submit(self._durable, file))

    def _complete(self, group: RowGroup, file: PartFile | tuple[AccountName, str]) -> Staged:
        """Write the last rows of a file in a thread of the pool: threads of other files run while this one compresses.

        A new file is opened here, so that no more files are open than threads run.
        """
        opened = file if isinstance(file, PartFile) else self._begin(*file)
        opened.write(group.rows, digest=group.digest)
        opened.close()
        return self._durable(opened)

    def _durable(self, file: PartFile) -> Staged:
        return file.finish(sink=self._settings.sink, attempt=self._attempt.token)


class _Gathering:
    """Collects Arrow batches until they are worth splitting."""

    def __init__(self) -> None:
        self._batches: list[tuple[pa.RecordBatch, pa.UInt64Array, pa.StringArray | None]] = []
        self.rows, self.size_bytes = 0, 0

    def add(self, rows: "pa.RecordBatch", hashes: "pa.UInt64Array", accounts: "pa.StringArray | None") -> None:
        self._batches.append((rows, hashes, accounts))
        self.rows += rows.num_rows
        self.size_bytes += rows.nbytes

    def take(self) -> Chunk:
        batches, self._batches = self._batches, []
        self.rows, self.size_bytes = 0, 0
        routes = [accounts for _, _, accounts in batches if accounts is not None]
        return Chunk(
            rows=pa.Table.from_batches([rows for rows, _, _ in batches]),
            hashes=np.concatenate([np.asarray(hashes) for _, hashes, _ in batches]),
            accounts=pa.chunked_array(routes) if routes else None,
        )


def _numbered(schema: "pa.Schema", ids: Mapping[str, int] | None) -> "pa.Schema":
    return schema if ids is None else with_field_ids(schema, ids)
