"""The task side of a sink into many tables: rows are split by their table, and each table's own stage writer takes its rows."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.model import AccountName, Attempt, SinkName, Staged
from penstock.core.table_names import TableNames
from penstock.core.unopened import unopened
from penstock.core.unrouted import unrouted
from penstock.errors import StageFailed
from penstock.protocols import CountsRequests, Stager, StageWriter
from penstock.sink.parquet.stager import ParquetStager
from penstock.sink.spool import SpoolStager

DROP, FAIL, QUARANTINE = "drop", "fail", "quarantine"
_LEAST_BUFFER_BYTES = 8 << 20
_MOST_NAMED = 1100
"""New tables that one attempt names: more than a sink may ever have."""


@dataclass(frozen=True, kw_only=True)
class ManyStager:
    """The recipe for stage writers of many tables. `opened`: the stager of each open table.

    `unrouted`: what happens to a row that may not be in any table: `fail` the batch, `drop` the row, or `quarantine` it.
    `puts_invalid_aside`: rows that their table cannot hold go into the quarantine, too.
    """

    sink: SinkName
    names: TableNames
    opened: Mapping[AccountName, Stager]
    unrouted: str = FAIL
    puts_invalid_aside: bool = False

    def open(self, attempt: Attempt, schema: "pa.Schema") -> "ManyStageWriter":
        return ManyStageWriter(self, attempt, schema)

    def refusal(self, name: str | None) -> str | None:
        """Return why a row for table `name` is not taken, as the end of a sentence; None if it is, now or once that is open."""
        refusal = self.names.refusal(name)
        if refusal is not None or name is None or name in self.opened:
            return refusal
        other = self._by_folded_name.get(name.lower())
        return None if other is None else f"names table {name!r}, which differs from table {other!r} by case only"

    def refused(self, rows: "pa.RecordBatch", accounts: "pa.StringArray | None") -> Mapping[int, str]:
        """Return the rows for the quarantine, each with the reason."""
        found: dict[int, str] = {}
        for name, places in _places(_of_rows(accounts)):
            refusal = self.refusal(name)
            if refusal is not None:
                reason = f"The row {refusal}." if self.unrouted == QUARANTINE else None
                found |= {} if reason is None else dict.fromkeys(places.tolist(), reason)
            elif self.puts_invalid_aside:
                found |= self._invalid(rows, name, places)
        return dict(sorted(found.items()))

    def requests_sent(self) -> Mapping[str, int]:
        counting = [stager for stager in self.opened.values() if isinstance(stager, CountsRequests)]
        return {place: sent for stager in counting for place, sent in stager.requests_sent().items()}

    def unrouted_error(self, refusal: str, *, rows: int) -> StageFailed:
        return StageFailed(
            f"{rows} rows of the batch are in no table of sink {self.sink!r}: one {refusal}.",
            remedy="Nothing of the batch was decided. Correct the value in the transform, allow the table in `tables`, or write "
            "`unrouted: quarantine` or `unrouted: drop`.",
        )

    def _invalid(self, rows: "pa.RecordBatch", name: str | None, places: "np.ndarray") -> Mapping[int, str]:
        stager = None if name is None else self.opened.get(AccountName(name))
        if not isinstance(stager, SpoolStager):
            return {}
        return {int(places[at]): reason for at, reason in stager.refused(rows.take(pa.array(places)), None).items()}

    @cached_property
    def _by_folded_name(self) -> Mapping[str, AccountName]:
        return {name.lower(): name for name in self.opened}


class ManyStageWriter:
    """Stages the rows of one attempt, unless some are for tables that are not open: then it names these, and stages nothing."""

    def __init__(self, stager: ManyStager, attempt: Attempt, schema: "pa.Schema") -> None:
        self._stager, self._attempt, self._schema = stager, attempt, schema
        self._writers: dict[AccountName, StageWriter] = {}
        self._unopened: dict[AccountName, int] = {}
        self._dropped = 0

    def write(self, rows: "pa.RecordBatch", *, hashes: "pa.UInt64Array", accounts: "pa.StringArray | None") -> None:
        for name, places in _places(_of_rows(accounts)):
            refusal = self._stager.refusal(name)
            if refusal is not None:
                if self._stager.unrouted != DROP:  # `refused` took those for the quarantine
                    raise self._stager.unrouted_error(refusal, rows=len(places))
                self._dropped += len(places)
                continue
            assert name is not None, "NULL is refused"
            table, taken = AccountName(name), pa.array(places)
            if table not in self._stager.opened:
                self._note_unopened(table, len(places))
            elif not self._unopened:
                self._writer(table).write(rows.take(taken), hashes=hashes.take(taken), accounts=None)

    def finish(self) -> Sequence[Staged]:
        if self._unopened:
            self.abandon()
            waiting = self._unopened.items()
            return [unopened(self._stager.sink, table, self._attempt, rows=rows) for table, rows in waiting]
        staged = [
            replace(piece, sink=self._stager.sink, account=table)
            for table, writer in self._writers.items()
            for piece in writer.finish()
        ]
        dropped = [unrouted(self._stager.sink, self._attempt, rows=self._dropped)] if self._dropped else []
        return [*staged, *dropped]

    def abandon(self) -> None:
        for writer in self._writers.values():
            writer.abandon()

    def _note_unopened(self, table: AccountName, rows: int) -> None:
        if table in self._unopened or len(self._unopened) < _MOST_NAMED:
            self._unopened[table] = self._unopened.get(table, 0) + rows

    def _writer(self, table: AccountName) -> StageWriter:
        if table not in self._writers:
            self._writers[table] = self._stager.opened[table].open(self._attempt, self._schema)
        return self._writers[table]


def sharing(stager: Stager, table: AccountName, *, tables: int) -> Stager:
    """Return the stager of one of several tables, which takes only its share of what an attempt may keep in memory or inline.

    Where tables share a spool, its pieces are named after the table, too.
    """
    if isinstance(stager, SpoolStager):
        return replace(stager, inline_limit_bytes=stager.inline_limit_bytes // max(tables, 1), label=f"-{table}")
    assert isinstance(stager, ParquetStager)
    settings, several = stager.settings, max(tables, 1)
    buffer_bytes = max(settings.buffer_bytes // several, _LEAST_BUFFER_BYTES)
    inline_limit_bytes = settings.inline_limit_bytes // several
    return replace(stager, settings=replace(settings, buffer_bytes=buffer_bytes, inline_limit_bytes=inline_limit_bytes))


def _of_rows(accounts: "pa.StringArray | None") -> "pa.StringArray":
    assert accounts is not None, "a sink into many tables has a route"
    return accounts


def _places(accounts: "pa.StringArray") -> "Iterator[tuple[str | None, np.ndarray]]":
    """Yield each table that rows name, with their places in their order."""
    if not len(accounts):
        return
    encoded = accounts.dictionary_encode()
    codes = pc.fill_null(encoded.indices, len(encoded.dictionary)).to_numpy(zero_copy_only=False)
    order = np.argsort(codes, kind="stable")
    names = [*encoded.dictionary.to_pylist(), None]
    starts = np.searchsorted(codes[order], np.arange(len(names) + 1))
    for name, first, last in zip(names, starts[:-1], starts[1:], strict=True):
        if last > first:
            yield name, order[first:last]  # I5
