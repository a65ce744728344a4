"""`history: true`: every version of a row stays, with the time from which and up to which it was the row of its key.

The table has three columns more than the rows: `valid_from` and `valid_to`, between which a version was valid, and `is_current`.
With `sequence_by`, `valid_from` is the version's own value of that column. Without it, it is the place of the row in what the
sink was given: the ledger's position of the batch times 2^32, plus the row's number in the batch.

What a batch does is computed here, from its rows and the versions that the table has of their keys. The versions that are new
or changed are then written by upsert, under the key of the rows and `valid_from`.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.deletes import split_deletes
from penstock.core.model import Json, Position, RowDigest
from penstock.core.row_hash import row_hashes
from penstock.errors import Refused, Usage

HISTORY: Final = "history"
VALID_FROM, VALID_TO, IS_CURRENT = "valid_from", "valid_to", "is_current"
COLUMNS: Final = (VALID_FROM, VALID_TO, IS_CURRENT)

Codes: TypeAlias = npt.NDArray[np.int64]
"""One number for each row or change."""
Flags: TypeAlias = npt.NDArray[np.bool_]

_PLACES: Final = 32
"""Bits of a row's number in its batch."""


def with_history(rows: "pa.Schema", sequence_by: str | None) -> "pa.Schema":
    """Return the columns of the table. Raise Usage if the rows have one of those names themselves."""
    taken = next((name for name in rows.names if name.lower() in COLUMNS), None)
    if taken is not None:
        raise Usage(f"The rows have a column {taken!r}, which `history` adds to the table.", remedy="Rename it in the transform.")
    if sequence_by is not None and named_in(sequence_by, rows) not in rows.names:
        raise Usage(
            f"sequence_by names column {sequence_by!r}, but the rows have {', '.join(rows.names)}.",
            remedy="Correct `sequence_by:` of the sink.",
        )
    kind = pa.int64() if sequence_by is None else rows.field(named_in(sequence_by, rows)).type
    added = [pa.field(VALID_FROM, kind), pa.field(VALID_TO, kind), pa.field(IS_CURRENT, pa.bool_())]
    return pa.schema([*rows, *added], metadata=rows.metadata)


def json_with_history(schema: str, sequence_by: str | None) -> str:
    """Return Spark's JSON of the table's columns for that of the rows."""
    given = json.loads(schema)
    kinds = {field["name"]: field["type"] for field in given["fields"]}
    kind = "long" if sequence_by is None else kinds[sequence_by]
    added = [(VALID_FROM, kind), (VALID_TO, kind), (IS_CURRENT, "boolean")]
    fields: list[Json] = [{"name": name, "type": each, "nullable": True, "metadata": {}} for name, each in added]
    return json.dumps({**given, "fields": [*given["fields"], *fields]})


def named_in(column: str, rows: "pa.Schema") -> str:
    """Return the column's name in the rows, for databases that ignore case."""
    return column if column in rows.names else next((name for name in rows.names if name.lower() == column.lower()), column)


def split_pieces(pieces: "Sequence[pa.RecordBatch]", schema: "pa.Schema", *, has_deletes: bool) -> "tuple[pa.Table, Flags]":
    """Return all rows of staged `pieces`, and which of them delete; with `has_deletes`, pieces say so in their last column."""
    plain, flags = [piece.cast(schema) for piece in pieces] if not has_deletes else [], []
    for piece in pieces if has_deletes else ():
        rows, deletes = split_deletes(piece)
        plain.append(rows.cast(schema))
        flags.append(np.asarray(deletes, dtype=np.bool_))
    table = pa.Table.from_batches(plain, schema)
    return table, np.concatenate(flags) if flags else np.zeros(len(table), np.bool_)


class KeepsVersions(Protocol):
    """Whose versions a table keeps: what its rows are told apart by, and which column puts them in order, None for the stream."""

    @property
    def row_key(self) -> tuple[str, ...]: ...

    @property
    def sequence_by(self) -> str | None: ...


def history_changed(table: str, *, was_kept: bool) -> Refused:
    """Return the error for `history` that is set or left out for a table that the sink has filled in the other way."""
    was, is_now = ("with", "without") if was_kept else ("without", "with")
    return Refused(
        f"{table} was filled {was} `history: true` so far, and is to be filled {is_now} it now.",
        remedy="Set it back, or give the sink another name and another table.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The rows of a decided batch, in their order, with those that delete among them.

    `key` and `sequence_by` are columns of the rows. `position` is the ledger's.
    """

    rows: "pa.Table"
    deletes: Flags
    key: tuple[str, ...]
    sequence_by: str | None
    position: Position

    @classmethod
    def of(
        cls,
        pieces: "Sequence[pa.RecordBatch]",
        schema: "pa.Schema",
        *,
        like: "KeepsVersions",
        position: Position,
        has_deletes: bool,
    ) -> "Batch":
        """Return the batch of staged `pieces`, whose rows have `schema`; with `has_deletes` and the column of `core.deletes`."""
        rows, deletes = split_pieces(pieces, schema, has_deletes=has_deletes)
        return cls(
            rows=rows,
            deletes=deletes,
            key=tuple(named_in(name, schema) for name in like.row_key),
            sequence_by=None if like.sequence_by is None else named_in(like.sequence_by, schema),
            position=position,
        )

    @property
    def times(self) -> "pa.ChunkedArray":
        """The value of each row by which versions are put in order."""
        if self.sequence_by is not None:
            return self.rows.column(self.sequence_by)
        numbers = np.arange(len(self.rows), dtype=np.int64)
        return pa.chunked_array([pa.array((self.position << _PLACES) + numbers)])

    def as_versions(self) -> "pa.Table":
        """Return the rows as versions that are valid from their own time on."""
        return self._as_versions(pa.nulls(len(self.rows), self.times.type))

    def _as_versions(self, valid_to: "pa.Array") -> "pa.Table":
        columns = [*self.rows.columns, self.times, valid_to, pa.array(np.ones(len(self.rows), np.bool_))]
        return pa.Table.from_arrays(columns, schema=with_history(self.rows.schema, self.sequence_by))

    def earliest(self) -> "pa.Table":
        """Return for each key the row with the least time: no version that ended before it can change."""
        if not len(self.rows):
            return self.as_versions()
        keys, ranks = key_codes([self.rows.column(name) for name in self.key]), times_rank(self.times)
        order = np.lexsort((np.arange(len(keys)), ranks, keys))
        return self.as_versions().take(pa.array(order[_begins(keys[order])]))


def changed_versions(batch: Batch, there: "pa.Table", row_digest: RowDigest) -> "pa.Table":
    """Return the versions that the batch adds or changes, as the table is to have them; no two have one key and time.

    `there`: versions of the table under keys of the batch, at least those that are current or ended at `batch.earliest()` or
    later.

    1. Changes of a key are put in the order of their times; of those at one time, the later one in the stream counts.
    2. A version is valid from its time up to the next change, that of a deletion included. One that is deleted at its own time
       was valid for no time at all.
    3. A deletion of what is not there at its time leaves nothing.
    4. Without `sequence_by`, a row with the values of the version before it changes nothing.
    """
    return _Events.of(batch, there, row_digest).written() if len(batch.rows) else batch.as_versions()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Events:
    """All that happened to the keys of a batch, in the order of keys, times and arrival.

    Each is a row of `versions`, which has the `known` ones of the table, then the rows of the batch; or the end of such a row.
    `times` has the time of each row, then of each end. Of every event, `keys` and `ranks` say whose it is and when, `at` which
    row it is about, `time` the place of its time, and `deletes` whether it ends what is there.

    `hashes` are those of the rows' values, `ends` the rank of each known row's end, -1 without one. `collapses`: a row that
    repeats the values of the version before it changes nothing.
    """

    versions: "pa.Table"
    known: int
    times: "pa.ChunkedArray"
    keys: Codes
    ranks: Codes
    at: Codes
    time: Codes
    deletes: Flags
    hashes: npt.NDArray[np.uint64]
    ends: Codes
    collapses: bool

    @classmethod
    def of(cls, batch: Batch, there: "pa.Table", row_digest: RowDigest) -> "_Events":
        new = batch.as_versions()
        versions = pa.concat_tables([there.cast(new.schema), new])
        known, total = len(there), len(versions)
        ended = np.flatnonzero(np.asarray(versions.column(VALID_TO).is_valid()))
        times = _concatenated(versions.column(VALID_FROM), versions.column(VALID_TO).take(pa.array(ended)))
        keys, ranks = key_codes([versions.column(name) for name in batch.key]), times_rank(times)
        ends = np.full(known, -1, np.int64)
        ends[ended] = ranks[total:]
        at = np.concatenate([np.arange(total), ended])
        keys = keys[at]
        # At one time comes first what the table says: the version that begins then, and its end; next what the batch says.
        arrival = np.concatenate([np.where(np.arange(total) < known, 0, np.arange(total) + 2), np.ones(len(ended), np.int64)])
        order = np.lexsort((arrival, ranks, keys))
        is_kept = np.ones(len(at), np.bool_)
        is_kept[total:] = _are_deletions(keys, ranks, at, known=known, total=total)
        order = order[is_kept[order]]
        deletes = np.concatenate([np.zeros(known, np.bool_), batch.deletes, np.ones(len(ended), np.bool_)])
        return cls(
            versions=versions,
            known=known,
            times=times,
            keys=keys[order],
            ranks=ranks[order],
            at=at[order],
            time=order,
            deletes=deletes[order],
            hashes=np.asarray(row_hashes(versions.select(batch.rows.schema.names), row_digest)),
            ends=ends,
            collapses=batch.sequence_by is None,
        )

    def written(self) -> "pa.Table":
        """Return the versions that are new or changed."""
        first = np.flatnonzero(_begins(self.keys) | _begins(self.ranks))  # of the events at one time
        last = np.append(first[1:], len(self.keys)) - 1
        group = np.repeat(np.arange(len(first)), last - first + 1)
        row, own = np.full(len(first), -1, np.int64), np.full(len(first), -1, np.int64)
        versions = np.flatnonzero(~self.deletes)
        row[group[versions]] = self.at[versions]  # the last one stays
        own_events = versions[self.at[versions] < self.known]
        own[group[own_events]] = self.at[own_events]
        is_gone, keys = self.deletes[last], self.keys[first]
        if self.collapses:
            kept = ~self._repeats(row, keys)
            first, row, own, is_gone, keys = first[kept], row[kept], own[kept], is_gone[kept], keys[kept]
        return self._changed(first, row, own, is_gone=is_gone, keys=keys)

    def _repeats(self, row: Codes, keys: Codes) -> Flags:
        """Return which rows of the batch have the values of what is there when they come. No two events have one time here."""
        found = np.zeros(len(row), np.bool_)
        is_there = (row[:-1] >= 0) & (keys[1:] == keys[:-1])
        found[1:] = is_there & (row[1:] >= self.known) & (self.hashes[row[1:]] == self.hashes[row[:-1]])
        return found

    def _changed(self, first: Codes, row: Codes, own: Codes, *, is_gone: Flags, keys: Codes) -> "pa.Table":
        """Return the versions, without those that the table has as they are."""
        ended = np.full(len(first), -1, np.int64)  # the event at whose time a version ends
        is_followed = keys[1:] == keys[:-1]
        ended[:-1][is_followed] = first[1:][is_followed]
        ended = np.where(is_gone & (row >= 0), first, ended)
        rank = np.where(ended >= 0, self.ranks[ended], -1)
        known = np.flatnonzero(own >= 0)
        is_same = np.zeros(len(first), np.bool_)
        is_same[known] = (self.hashes[row[known]] == self.hashes[own[known]]) & (rank[known] == self.ends[own[known]])
        chosen = np.flatnonzero((row >= 0) & ~is_same)
        rows = self.versions.take(pa.array(row[chosen]))
        ends = np.where(ended >= 0, self.time[ended], 0)[chosen]
        is_open = ended[chosen] < 0
        valid_to = self.times.take(pa.array(ends, mask=is_open))
        values = [
            *rows.columns[: -len(COLUMNS)],
            self.times.take(pa.array(self.time[first][chosen])),
            valid_to,
            pa.array(is_open),
        ]
        return pa.Table.from_arrays(values, schema=rows.schema)


def _are_deletions(keys: Codes, ranks: Codes, at: Codes, *, known: int, total: int) -> Flags:
    """Return which ends of versions are deletions: those at which no other version of the table begins, or of their own time."""
    width = int(ranks.max(initial=0)) + 1
    when = keys * width + ranks
    found: Flags = (when[total:] == when[at[total:]]) | ~np.isin(when[total:], when[:known])
    return found


def _begins(values: Codes) -> Flags:
    """Return where a value differs from the one before it."""
    found = np.ones(len(values), np.bool_)
    found[1:] = values[1:] != values[:-1]
    return found


def key_codes(columns: "Sequence[pa.ChunkedArray]") -> Codes:
    """Return a number for each row, the same for rows that have the same values."""
    codes: Codes = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        encoded = column.combine_chunks().dictionary_encode()
        combined = codes * (len(encoded.dictionary) + 1) + np.asarray(encoded.indices, dtype=np.int64)
        codes = np.unique(combined, return_inverse=True)[1].astype(np.int64)
    return codes


def times_rank(times: "pa.ChunkedArray") -> Codes:
    """Return the place of each time in the order of all, the same for equal ones."""
    return np.asarray(pc.rank(times, tiebreaker="dense")).astype(np.int64)


def _concatenated(one: "pa.ChunkedArray", other: "pa.ChunkedArray") -> "pa.ChunkedArray":
    return pa.chunked_array([*one.chunks, *other.chunks], one.type)
