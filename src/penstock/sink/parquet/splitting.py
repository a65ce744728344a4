"""The settings of the Parquet sink's tasks, and their first step: they split arriving rows by account and partition directory.

Rows are split chunk by chunk, with Arrow's `group_by` and one `take`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.core.model import NEWEST_ROW_DIGEST, AccountName, Json, RowDigest, SinkName
from penstock.core.row_hash import digest, row_hashes
from penstock.errors import StageFailed
from penstock.sink.parquet.encoding import Encodings
from penstock.sink.parquet.layout import DECIDED_PREFIX, PartitionColumn, Value, is_lost_as_directory, partitions

INLINE_LIMIT_BYTES = 100 * 1024
"""Per attempt, however many files it has, as for the spool. A decision holds up to this much for each of its tasks."""

FooterNotes: TypeAlias = Callable[[pq.FileMetaData, pa.Schema], Mapping[str, Json]]
"""Makes what `Staged.ref` says of a file besides where it is staged, from its footer and its Arrow schema. Picklable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteSettings:
    """How files are written; picklable, for the tasks.

    `unrouted` takes rows whose route names no account; with None such rows fail the batch. `null_for_lost_texts` stores texts
    that no partition directory can express (the empty one) as null instead of failing. Sizes of row groups and buffers are of
    Arrow data in memory, `buffer_bytes` for all files of an attempt together. Small files of an attempt travel in the decision,
    up to `inline_limit_bytes` in all, if the store can put them at once. `owner` is part of every file's name. `row_digest`: how
    rows are hashed, as the ledger states. `footer_notes` adds to `Staged.ref` what publishing needs of each file's footer.
    `field_ids`: the ids of the columns in the files, by path as `with_field_ids` takes them. `prefix`: the first part of file
    names; files with another one than `part` are those of no batch.
    """

    sink: SinkName
    owner: str
    accounts: tuple[AccountName, ...]
    unrouted: AccountName | None = None
    partition_by: tuple[str, ...] = ()
    null_for_lost_texts: bool = False
    compression: str = "zstd"
    encoding: Encodings = field(default_factory=Encodings)
    target_file_size_bytes: int = 128_000_000
    row_group_rows: int = 1 << 20
    row_group_bytes: int = 64 << 20
    buffer_bytes: int = 128 << 20
    open_files: int = 64
    inline_limit_bytes: int = INLINE_LIMIT_BYTES
    row_digest: RowDigest = NEWEST_ROW_DIGEST
    footer_notes: FooterNotes | None = None
    field_ids: Mapping[str, int] | None = None
    prefix: str = DECIDED_PREFIX

    @property
    def shown(self) -> str:
        """What becomes of a batch, for `explain`: how many files depends on its rows, and on the tasks that have them."""
        parts = f", partitioned by {', '.join(self.partition_by)}" if self.partition_by else ""
        places = [
            name for name, several in (("account", len(self.accounts) > 1), ("partition", bool(self.partition_by))) if several
        ]
        each = f" for each {' and '.join(places)} that it has rows of" if places else ""
        size_mb = self.target_file_size_bytes / 1e6
        return f"Parquet ({self.compression}){parts}: each task writes one file{each}, and another one after {size_mb:.0f} MB"


_OWN_SHARE = 16
_REMEMBERED_NAMES = 10_000
_SHOWN = 60


class Lease:
    """The memory of `rows`, shared by some groups: it is free once all of them have released it."""

    def __init__(self, rows: "pa.Table", *, holders: int = 1) -> None:
        self._rows, self._size_bytes = len(rows), int(rows.nbytes)
        self._holders = holders
        self._taken = False

    def share_of(self, rows: int) -> int:
        return self._size_bytes * rows // max(self._rows, 1)

    def take(self) -> int:
        """Take the rows of one holder; return the bytes that become used, which is all of them with the first holder."""
        first, self._taken = not self._taken, True
        return self._size_bytes if first else 0

    def let_go(self) -> int:
        """Release one holder; return the bytes that become free, which is all of them with the last holder."""
        self._holders -= 1
        return 0 if self._holders else self._size_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The rows of a chunk for one directory of one account, without partition columns. `size_bytes`: their share of `lease`."""

    account: AccountName
    directories: str
    rows: "pa.Table"
    digest: int
    size_bytes: int
    lease: Lease


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Rows as they arrived; `accounts` is None if there is no route."""

    rows: "pa.Table"
    hashes: npt.NDArray[np.uint64]
    accounts: "pa.ChunkedArray | None"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """A group before its rows are taken. `numbers`: the places of its rows in the chunk."""

    numbers: "pa.Int64Array"
    account: AccountName
    values: tuple[Value, ...]
    digest: int


def unrouted(account: str | None, settings: WriteSettings, *, rows: int = 1) -> str:
    """Return the sentence about rows whose route gives `account`, which the sink does not have."""
    shown = "null" if account is None else repr(account[:_SHOWN])
    route = f"{rows} rows route" if rows > 1 else "A row routes"
    return f"{route} to the account {shown}, but sink {settings.sink!r} has {', '.join(settings.accounts)}."


class Splitter:
    """Splits the chunks of one attempt. Not thread-safe."""

    def __init__(self, settings: WriteSettings, schema: "pa.Schema") -> None:
        self._settings, self._schema = settings, schema
        self._accounts = pa.array(settings.accounts, pa.string())
        self._columns = partitions(schema, settings.partition_by)
        indexes = {column.index for column in self._columns if column.term is None}
        self._data = [index for index in range(len(schema)) if index not in indexes]
        self._names: dict[tuple[int, Value], str] = {}

    @property
    def data_schema(self) -> "pa.Schema":
        return pa.schema([self._schema.field(index) for index in self._data], metadata=self._schema.metadata)

    def split(self, chunk: Chunk) -> "list[Group]":
        """Return the groups of `chunk`. Raises StageFailed for rows without account, or values that no directory can express."""
        data = chunk.rows.select(self._data)
        if chunk.accounts is None and not self._columns:
            parts = [_Part(numbers=_every(data), account=self._settings.accounts[0], values=(), digest=digest(chunk.hashes))]
        else:
            parts = self._parts(chunk)
        if len(parts) == 1:
            return [self._group(parts[0], data, Lease(data), chunk)]
        return list(self._groups(parts, data, chunk))

    # --- assigning rows

    def _parts(self, chunk: Chunk) -> list[_Part]:
        keys = [self._account_numbers(chunk), *(column.values_of(chunk.rows) for column in self._columns)]
        names = [str(place) for place in range(len(keys))]
        rows = [_every(chunk.rows), pa.array(chunk.hashes)]
        table = pa.Table.from_arrays([*keys, *rows], names=[*names, "row", "hash"])
        found = table.group_by(names, use_threads=False).aggregate([("row", "list"), ("hash", "sum")])  # I5: in their order
        values = [_python_values(column, found.column(name)) for column, name in zip(self._columns, names[1:], strict=True)]
        return [
            _Part(numbers=numbers.values, account=self._settings.accounts[account], values=tuple(own), digest=summed)
            for numbers, summed, account, *own in zip(
                found.column("row_list"),
                found.column("hash_sum").to_pylist(),
                found.column(names[0]).to_pylist(),
                *values,
                strict=True,
            )
        ]

    def _account_numbers(self, chunk: Chunk) -> "pa.Array | pa.ChunkedArray":
        """Return for each row the index of its account. Raises StageFailed for rows without an account."""
        if chunk.accounts is None:
            return pa.repeat(0, len(chunk.rows))
        settings = self._settings
        found = pc.index_in(chunk.accounts, value_set=self._accounts)
        if settings.unrouted is not None:
            return pc.fill_null(found, settings.accounts.index(settings.unrouted))
        if found.null_count:
            strange = chunk.accounts.filter(pc.is_null(found))
            raise StageFailed(
                unrouted(strange[0].as_py(), settings, rows=len(strange)),
                remedy="Correct the route, add the account, or let `unrouted` name an account that takes such rows.",
            )
        return found

    # --- taking rows

    def _groups(self, parts: Sequence[_Part], data: "pa.Table", chunk: Chunk) -> Iterator[Group]:
        """Yield groups. Large ones get rows of their own; small ones share one copy, which lives until the last is written."""
        small = [part for part in parts if len(part.numbers) * _OWN_SHARE < len(data)]
        for part in parts:
            if len(part.numbers) * _OWN_SHARE >= len(data):
                rows = data.take(part.numbers)
                yield self._group(part, rows, Lease(rows), chunk)
        if not small:
            return
        shared = data.take(pa.concat_arrays([part.numbers for part in small]))
        lease = Lease(shared, holders=len(small))
        start = 0
        for part in small:
            rows = shared.slice(start, len(part.numbers))
            yield self._group(part, rows, lease, chunk)
            start += len(rows)

    def _group(self, part: _Part, rows: "pa.Table", lease: Lease, chunk: Chunk) -> Group:
        values, summed = self._stored_values(part, chunk)
        return Group(
            account=part.account,
            directories="/".join(self._directory(place, value) for place, value in enumerate(values)),
            rows=rows,
            digest=summed,
            size_bytes=lease.share_of(len(rows)),
            lease=lease,
        )

    def _stored_values(self, part: _Part, chunk: Chunk) -> tuple[tuple[Value, ...], int]:
        """Return the partition values as readers will see them, and the digest of the rows with these values."""
        lost = [
            place for place, value in enumerate(part.values) if self._columns[place].term is None and is_lost_as_directory(value)
        ]
        if not lost:
            return part.values, part.digest
        values = tuple(None if place in lost else value for place, value in enumerate(part.values))
        return values, self._digest_with_nulls(lost, chunk.rows.take(part.numbers))

    def _digest_with_nulls(self, lost: Sequence[int], rows: "pa.Table") -> int:
        """Return the digest of rows whose lost texts are null, as they will be stored. Raises StageFailed unless allowed."""
        for column in (self._columns[place] for place in lost):
            if not self._settings.null_for_lost_texts:
                raise _lost_text(column, rows)
            rows = rows.set_column(column.index, rows.schema.field(column.index), pa.nulls(len(rows), column.kind))
        return digest(row_hashes(rows, self._settings.row_digest))

    def _directory(self, place: int, value: Value) -> str:
        known = self._names.get((place, value))
        if known is None:
            if len(self._names) >= _REMEMBERED_NAMES:
                self._names.clear()
            known = self._names[place, value] = self._columns[place].directory(value)
        return known


def _every(rows: "pa.Table") -> "pa.Int64Array":
    return pa.array(np.arange(len(rows)))


def _python_values(column: PartitionColumn, values: "pa.Array") -> list[Value]:
    try:
        found: list[Value] = values.to_pylist()
    except (ValueError, OverflowError) as cause:
        raise StageFailed(
            f"Partition column {column.name!r} holds a value that has no text: {cause}.",
            remedy="Repair such values in the transform: texts must be UTF-8, dates must lie in the years 1 to 9999.",
        ) from None
    return found


def _lost_text(column: PartitionColumn, rows: "pa.Table") -> StageFailed:
    text = rows.column(column.index)[0].as_py()
    return StageFailed(
        f"Partition column {column.name!r} holds the text {text!r} in {len(rows)} rows; as a directory it would be read as null.",
        remedy="Replace it in the transform, with `nullif(column, '')` say.",
    )
