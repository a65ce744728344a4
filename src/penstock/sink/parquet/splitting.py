"""What the tasks of the Parquet sink are set to, and the first that they do: they split the rows that arrive.

A chunk of rows is split by account and partition directory, with one sort of small numbers and one `take`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.model import NEWEST_ROW_DIGEST, AccountName, RowDigest, SinkName
from penstock.core.row_hash import digest, row_hashes
from penstock.errors import StageFailed
from penstock.sink.parquet.encoding import EncodingSettings
from penstock.sink.parquet.layout import PartitionColumn, Value, is_lost_as_directory, partition_columns

INLINE_LIMIT_BYTES = 100 * 1024
"""Per attempt, however many files it has, as for the spool. A decision holds up to this much for each of its tasks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteSettings:
    """How files are written; picklable, for the tasks.

    `unrouted` takes rows whose route names no account; with None such rows fail the batch. `null_for_lost_texts` stores texts
    that no partition directory can express (the empty one) as null instead of failing. Sizes of row groups and buffers are of
    Arrow data in memory, `buffer_bytes` for all files of an attempt together. Small files of an attempt travel in the decision,
    up to `inline_limit_bytes` in all, if the store can put them at once. `owner` is part of every file's name. `row_digest` is
    how rows are hashed, which the ledger says.
    """

    sink: SinkName
    owner: str
    accounts: tuple[AccountName, ...]
    unrouted: AccountName | None = None
    partition_by: tuple[str, ...] = ()
    null_for_lost_texts: bool = False
    compression: str = "zstd"
    encoding: EncodingSettings = field(default_factory=EncodingSettings)
    target_file_size_bytes: int = 128_000_000
    row_group_rows: int = 1 << 20
    row_group_bytes: int = 64 << 20
    buffer_bytes: int = 128 << 20
    open_files: int = 64
    inline_limit_bytes: int = INLINE_LIMIT_BYTES
    row_digest: RowDigest = NEWEST_ROW_DIGEST


_OWN_SHARE = 16
_REMEMBERED_NAMES = 10_000
_SHOWN = 60
_LARGEST_NUMBER = (1 << 63) - 1

Numbers = npt.NDArray[np.int64]


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
    """The rows of a chunk for one directory of one account, without partition columns. `size_bytes` is their share."""

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
    """A group before its rows are taken: where they stand in the sorted chunk, and what they have in common."""

    start: int
    end: int
    account: AccountName
    values: tuple[Value, ...]
    digest: int


class _Coded(NamedTuple):
    """What one partition column contributes to the numbers. `before`: the earlier numbers, where they were replaced."""

    dictionary: "pa.Array"
    before: "Numbers | None"


class Splitter:
    """Splits the chunks of one attempt. Not thread-safe."""

    def __init__(self, settings: WriteSettings, schema: "pa.Schema") -> None:
        self._settings, self._schema = settings, schema
        self._accounts = pa.array(settings.accounts, pa.string())
        self._columns = partition_columns(schema, settings.partition_by)
        indexes = {column.index for column in self._columns}
        self._data = [index for index in range(len(schema)) if index not in indexes]
        self._names: dict[tuple[int, Value], str] = {}

    @property
    def data_schema(self) -> "pa.Schema":
        return pa.schema([self._schema.field(index) for index in self._data], metadata=self._schema.metadata)

    def split(self, chunk: Chunk) -> "list[Group]":
        """Return the groups of `chunk`. Raises StageFailed for rows without account, or values that no directory can express."""
        numbers, coded = self._numbers(chunk)
        data = chunk.rows.select(self._data)
        if numbers is None:
            whole = _Part(start=0, end=len(data), account=self._settings.accounts[0], values=(), digest=digest(chunk.hashes))
            return [self._own(whole, data, chunk, order=None)]
        order, parts = self._parts(numbers, coded, chunk.hashes)
        if len(parts) == 1:
            return [self._own(parts[0], data, chunk, order)]
        return list(self._groups(parts, data, chunk, order))

    # --- assigning rows

    def _numbers(self, chunk: Chunk) -> "tuple[Numbers | None, list[_Coded]]":
        """Return one number per row for its account and partition values; None if all rows go to the same place."""
        numbers = self._account_numbers(chunk.accounts)
        coded = list[_Coded]()
        span = len(self._settings.accounts)
        for column in self._columns:
            encoded = pc.dictionary_encode(chunk.rows.column(column.index).combine_chunks(), null_encoding="encode")
            indices = np.asarray(encoded.indices, dtype=np.int64)
            values = len(encoded.dictionary)
            before = None
            if numbers is not None and span * values > _LARGEST_NUMBER:  # would overflow: renumber what is there
                before, numbers = np.unique(numbers, return_inverse=True)
                span = len(before)
            numbers, span = indices if numbers is None else numbers * values + indices, span * values
            coded.append(_Coded(encoded.dictionary, before))
        return numbers, coded

    def _account_numbers(self, accounts: "pa.ChunkedArray | None") -> "Numbers | None":
        """Return the account of each row by its number, None if all go to the only one. Raises StageFailed for rows without."""
        if accounts is None:
            return None
        settings = self._settings
        found = pc.index_in(accounts, value_set=self._accounts)
        if found.null_count and settings.unrouted is None:
            strange = accounts.filter(pc.is_null(found))
            name = strange[0].as_py()
            shown = "null" if name is None else repr(name[:_SHOWN])
            rows = f"{len(strange)} rows route" if len(strange) > 1 else "A row routes"
            raise StageFailed(
                f"{rows} to the account {shown}, but sink {settings.sink!r} has {', '.join(settings.accounts)}.",
                remedy="Correct the route, add the account, or let `unrouted` name an account that takes such rows.",
            )
        if settings.unrouted is not None:
            found = pc.fill_null(found, settings.accounts.index(settings.unrouted))
        return np.asarray(found, dtype=np.int64)

    def _parts(self, numbers: Numbers, coded: list[_Coded], hashes: npt.NDArray[np.uint64]) -> tuple[Numbers, list[_Part]]:
        present, ranks = np.unique(numbers, return_inverse=True) if int(numbers.max()) > 0xFFFF else (None, numbers)
        counts = np.bincount(ranks)
        ranks = ranks.astype(np.uint16) if len(counts) <= 0x10000 else ranks
        order = np.argsort(ranks, kind="stable")
        taken = np.flatnonzero(counts)
        ends = np.cumsum(counts[taken])
        starts = ends - counts[taken]
        digests = np.add.reduceat(hashes[order], starts)
        codes = taken if present is None else present[taken]
        values = self._values(codes, coded)
        parts = [
            _Part(start=start, end=end, account=account, values=value, digest=int(summed))
            for start, end, (account, value), summed in zip(starts.tolist(), ends.tolist(), values, digests, strict=True)
        ]
        return order, parts

    def _values(self, codes: Numbers, coded: list[_Coded]) -> "Iterator[tuple[AccountName, tuple[Value, ...]]]":
        """Return what each code stands for: the reverse of `_numbers`."""
        columns: list[list[Value]] = []
        for column, (dictionary, before) in zip(reversed(self._columns), reversed(coded), strict=True):
            codes, indices = np.divmod(codes, len(dictionary))
            codes = codes if before is None else before[codes]
            columns.append(_python_values(column, dictionary.take(pa.array(indices))))
        accounts = [self._settings.accounts[number] for number in codes.tolist()]
        return zip(accounts, zip(*reversed(columns), strict=True) if columns else [()] * len(accounts), strict=True)

    # --- taking rows

    def _groups(self, parts: Sequence[_Part], data: "pa.Table", chunk: Chunk, order: Numbers) -> Iterator[Group]:
        """Yield groups. Large ones get rows of their own; small ones share one copy, which lives until the last is written."""
        small = [part for part in parts if (part.end - part.start) * _OWN_SHARE < len(order)]
        for part in parts:
            if (part.end - part.start) * _OWN_SHARE >= len(order):
                yield self._own(part, data.take(pa.array(order[part.start : part.end])), chunk, order)
        if not small:
            return
        shared = data.take(pa.array(np.concatenate([order[part.start : part.end] for part in small])))
        lease = Lease(shared, holders=len(small))
        start = 0
        for part in small:
            rows = shared.slice(start, part.end - part.start)
            yield self._group(part, rows, lease, chunk, order)
            start += len(rows)

    def _own(self, part: _Part, rows: "pa.Table", chunk: Chunk, order: Numbers | None) -> Group:
        return self._group(part, rows, Lease(rows), chunk, order)

    def _group(self, part: _Part, rows: "pa.Table", lease: Lease, chunk: Chunk, order: Numbers | None) -> Group:
        values, summed = self._stored_values(part, chunk, order)
        return Group(
            account=part.account,
            directories="/".join(self._directory(place, value) for place, value in enumerate(values)),
            rows=rows,
            digest=summed,
            size_bytes=lease.share_of(len(rows)),
            lease=lease,
        )

    def _stored_values(self, part: _Part, chunk: Chunk, order: Numbers | None) -> tuple[tuple[Value, ...], int]:
        """Return the partition values as readers will see them, and the digest of rows that have these."""
        lost = [place for place, value in enumerate(part.values) if is_lost_as_directory(value)]
        if not lost or order is None:
            return part.values, part.digest
        rows = chunk.rows.take(pa.array(order[part.start : part.end]))
        values = tuple(None if place in lost else value for place, value in enumerate(part.values))
        return values, self._digest_with_nulls(lost, rows)

    def _digest_with_nulls(self, lost: Sequence[int], rows: "pa.Table") -> int:
        """Return the digest of rows whose lost texts are null, as they will be stored. Raises StageFailed if they must not be."""
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
