"""The offsets of one query over a table that another pipeline fills: where it begins, and how far the next batch goes.

Nothing is registered at the first pipeline: its ledger keeps some 10,000 entries, and what it has forgotten is refused with
numbers. Knows no Spark.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.commit.publication import settled_at
from penstock.core.model import BatchId, Entry, Position
from penstock.errors import Failed, InputLost, LedgerMismatch, PenstockError, Refused, Retryable
from penstock.run.chain.offset import ChainOffset, first_above, read_offset
from penstock.run.chain.pieces import Piece, pieces_of
from penstock.source.chain.settings import ChainSettings
from penstock.support.filesystem_errors import problem_of

if TYPE_CHECKING:
    from penstock.commit.table_batches import TableBatch
    from penstock.run.chain.table import ChainedTable

_OTHER_LEDGER = "Let the source name the file of the pipeline that it began with; or begin anew with a new checkpoint."


def _opened(settings: ChainSettings) -> "ChainedTable":
    from penstock.run.chain.table import open_chained

    return open_chained(settings)


class TableStream:
    """The offsets of one query, in one process on the driver. Picklable: the table is opened again where it is asked for.

    Raises InputLost, Retryable, LedgerMismatch, Refused, Failed, Usage.
    """

    def __init__(self, settings: ChainSettings, open_table: "Callable[[ChainSettings], ChainedTable]" = _opened) -> None:
        self._settings, self._open = settings, open_table
        self._table: ChainedTable | None = None
        self._until: Position | None = None
        self._seen: dict[str, Any] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_table": None}

    def begin(self) -> dict[str, Any]:
        """Return where a query without a checkpoint begins."""
        with self._explained():
            table, tail = self._opened(), self._opened().tail()
            at = Position(0) if tail is None else self._begin(tail)
            entry = table.ledger.read(at) if at else None
            known = None if tail is None else tail.summary.ledger_id
            nonce = None if entry is None else entry.nonce
            rows = table.batches.rows_at(at) or 0
            return ChainOffset(ledger_id=known, sink=table.sink, begin=at, position=at, nonce=nonce, rows=rows).written()

    def stop_at_now(self) -> None:
        """Read nothing that is decided later."""
        with self._explained():
            tail = self._opened().tail()
            self._until = Position(0) if tail is None else tail.position

    def advance(self, start: Mapping[str, Any]) -> dict[str, Any]:
        """Return where the batch ends that begins at `start`; `start` itself if there is nothing new."""
        with self._explained():
            at = read_offset(start)
            assert at is not None
            tail = self.required_tail(at)
            if tail is None:
                return dict(start)
            self.require_standing(tail, after=Position(0), end=at)
            table = self._opened()
            if at.position == at.begin and self._settings.start == "earliest":
                self._require_none_older(tail, at)
            table.batches.forget(until=at.position)
            taken = list(
                self._taken(table.batches.published(tail, after=self._after(tail, at.position), marked_at=table.marked_at))
            )
            if not taken:
                return dict(start)
            return at.after(taken[-1], ledger_id=tail.summary.ledger_id).written()

    def planned(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> Sequence[Piece]:
        """Return what the tasks of the batch read: the same for the same offsets, for ever. Tasks raise where files are gone."""
        with self._explained():
            first, last = read_offset(start), read_offset(end)
            if last is None or (first is not None and first.position == last.position):
                return ()
            tail = self.required_tail(last)
            if tail is None:
                return ()
            after = first_above(first, last)
            self.require_standing(tail, after=after, end=last)
            table = self._opened()
            batches = list(table.batches.standing(tail, after=self._after(tail, after), until=last.position))
            for batch in batches:
                self._require_columns(batch)
            return tuple(pieces_of(table, batches, self._settings))

    def newest(self) -> dict[str, Any] | None:
        """Return how far the table went at the last look; None before there was any."""
        return self._seen or None

    def close(self) -> None:
        """Close the ledger; it is opened again where it is needed."""
        if self._table is not None:
            self._table.close()
            self._table = None

    def _opened(self) -> "ChainedTable":
        if self._table is None:
            self._table = self._open(self._settings)
        return self._table

    def _taken(self, batches: "Iterator[TableBatch]") -> "Iterator[TableBatch]":
        """Yield the batches of one micro-batch: one at least, and no more than the limits allow."""
        given, files, size, count = self._settings, 0, 0, 0
        for batch in batches:
            totals = batch.totals
            files, size, count = files + len(batch.pieces), size + totals.size_bytes, count + 1
            over = _is_over(files, given.max_files) or _is_over(size, given.max_bytes) or _is_over(count, given.max_batches)
            if (over and count > 1) or _is_over(batch.position, self._until):
                return
            self._require_columns(batch)
            yield batch

    # --- where a query begins

    def _begin(self, tail: Entry) -> Position:
        start = self._settings.start
        if start == "earliest":
            return self._earliest(tail)
        if tail.summary.rewinding_at is not None:
            raise Retryable(f"Pipeline {tail.pipeline!r} is being rewound.", remedy="Start again when that is finished.")
        if start == "latest":
            return self._latest(tail)
        table, upcoming = self._opened(), tail.summary.next_batch_id or 0
        found = table.batches.numbered(tail, BatchId(start))
        if found is None and start != upcoming:
            raise Refused(
                f"Source {self._settings.name!r} is to begin with batch {start}, which the ledger of pipeline {tail.pipeline!r} "
                f"does not tell: its next batch is {upcoming}.",
                remedy="Take a batch that `penstock history` of that pipeline lists, or startingBatch: earliest.",
            )
        return tail.position if found is None else Position(found - 1)

    def _earliest(self, tail: Entry) -> Position:
        table = self._opened()
        oldest = table.batches.oldest_retained(tail)
        first = next(table.batches.standing(tail, after=Position(oldest - 1), until=tail.position), None)
        reached = tail.position if first is None else first.position
        rows = (table.batches.rows_at(reached) or 0) - (0 if first is None else first.totals.rows)
        if oldest > 1 and rows and self._settings.fails_on_loss:
            begins = f"position {oldest}" if first is None else f"batch {first.batch_id}"
            remedy = "startingBatch: latest" if first is None else f"startingBatch: {first.batch_id}"
            raise InputLost(
                f"The ledger of pipeline {tail.pipeline!r} begins with {begins}, and {rows:,} rows of the table are older: in "
                "which files they are it has forgotten.",
                remedy=f"Begin with the option {remedy}, and load what is older by `penstock.read`.",
            )
        return Position(oldest - 1)

    def _latest(self, tail: Entry) -> Position:
        """Return the position up to which every batch is shown."""
        table, backfill = self._opened(), tail.summary.backfills.get(self._opened().sink)
        after = settled_at(tail.summary)
        if backfill is not None and not backfill.ended:
            after = min(after, Position(backfill.newest - 1))
        shown = {batch.position for batch in table.batches.published(tail, after=after, marked_at=table.marked_at)}
        waiting = (
            batch for batch in table.batches.standing(tail, after=after, until=tail.position) if batch.position not in shown
        )
        first = next(waiting, None)
        return tail.position if first is None else Position(first.position - 1)

    # --- what must hold; `penstock status` asks for it, too

    def required_tail(self, at: ChainOffset) -> Entry | None:
        """Return the ledger's tail, None while it is empty.

        Raises Refused, LedgerMismatch, Retryable unless it is the ledger that `at` is of, and has what that ledger had.
        """
        table = self._opened()
        tail = table.tail()
        name, where = self._settings.name, table.ledger.location
        if at.sink != table.sink:
            raise Refused(f"Source {name!r} has read sink {at.sink!r}, and is to read {table.sink!r}.", remedy=_OTHER_LEDGER)
        if tail is None:
            if at.position:
                raise Retryable(
                    f"The ledger at {where} is empty, and source {name!r} has read it up to position {at.position}.",
                    remedy="Mount its place, or restore it, and start again.",
                )
            return None
        self._seen = {"position": tail.position, "batch": (tail.summary.next_batch_id or 0) - 1}
        if None not in {at.ledger_id, tail.summary.ledger_id} and at.ledger_id != tail.summary.ledger_id:
            raise LedgerMismatch(
                f"Source {name!r} has read ledger {at.ledger_id}, and {where} is ledger {tail.summary.ledger_id}.",
                remedy=_OTHER_LEDGER,
            )
        entry = tail if tail.position == at.position else table.ledger.read(at.position)
        is_other = entry is not None and at.nonce is not None and entry.nonce != at.nonce
        if tail.position < at.position or is_other:
            found = f"ends with position {tail.position}" if tail.position < at.position else "has another entry there"
            raise LedgerMismatch(
                f"Source {name!r} has read the ledger at {where} up to position {at.position}, and it {found}: a copy that went "
                "on by itself, or an older one, is in its place.",
                remedy="Put the ledger back that the source has read, and start again.",
            )
        return tail

    def require_standing(self, tail: Entry, *, after: Position, end: ChainOffset) -> None:
        """Raise InputLost if a rewind took back batches above `after` that were read up to `end`."""
        found = self._opened().batches.taken_back(tail, until=end.position)
        taken = [batch for batch in found[1] if batch.position > after] if found is not None else []
        if found is None or not taken:
            return
        rows, first, last = sum(batch.totals.rows for batch in taken), taken[0].batch_id, taken[-1].batch_id
        which = f"batch {first}" if first == last else f"batches {first} to {last}"
        raise InputLost(
            f"Pipeline {tail.pipeline!r} was rewound at position {found[0]} of its ledger: source {self._settings.name!r} has "
            f"read {which} ({rows:,} rows), which it took back.",
            remedy="Rewind this pipeline to the last batch before it read them: `penstock rewind FILE --to-batch N --yes`; "
            "`penstock offsets FILE --batch N` shows up to which position batch N read.",
        )

    def _require_none_older(self, tail: Entry, begin: ChainOffset) -> None:
        """Raise InputLost if an account began with files of a query that was taken over: they are in no batch."""
        table = self._opened()
        adopted = {name: files for name, of in table.tables.items() if (files := of.area.adopted()) is not None and files.sizes}
        if not adopted or not self._settings.fails_on_loss:
            return
        first = next(table.batches.standing(tail, after=begin.position, until=tail.position), None)
        number = tail.summary.next_batch_id if first is None else first.batch_id
        account, files = next(iter(adopted.items()))
        raise InputLost(
            f"Account {account!r} of pipeline {tail.pipeline!r} was taken over from another query, with {len(files.sizes):,} "
            "files that are in no batch of its ledger.",
            remedy=f"Begin with the option startingBatch: {number}, and load these files by themselves: those of "
            "`penstock.read` whose batch_id is None.",
        )

    def _require_columns(self, batch: "TableBatch") -> None:
        """Raise Retryable for a column that came since the query started, Refused for one that is gone since."""
        given = self._settings
        if given.has_fixed_columns or given.columns is None:
            return
        known = {field["name"] for field in json.loads(given.columns)["fields"]}
        schema = self._opened().fixed_schema or batch.schema
        surplus = [field["name"] for field in json.loads(schema)["fields"] if field["name"] not in known]
        if not surplus:
            return
        newest = {field["name"] for field in json.loads(self._opened().columns())["fields"]}
        what = f"Batch {batch.batch_id} of pipeline {self._opened().pipeline!r} has the column {surplus[0]!r}"
        if surplus[0] in newest:
            raise Retryable(
                f"{what}, which it had not when source {given.name!r} was opened.", remedy="Start again: then it is read, too."
            )
        raise Refused(
            f"{what}, which its newest batch has not any more.",
            remedy=f"Write the columns to be read as sources.{given.name}.schema: those that a batch lacks are NULL.",
        )

    def _after(self, tail: Entry, position: Position) -> Position:
        """Return above which position is read: what the ledger has forgotten is passed over where that is asked for."""
        if self._settings.fails_on_loss or position >= tail.position:
            return position
        return max(position, Position(self._opened().batches.oldest_retained(tail) - 1))

    @contextmanager
    def _explained(self) -> "Iterator[None]":
        try:
            yield
        except PenstockError:
            raise
        except OSError as error:
            problem = problem_of(error)
            raise Failed(
                f"The table of source {self._settings.name!r} cannot be read: {problem.reason}.", remedy=f"{problem.advice}."
            ) from error


def _is_over(number: int, limit: int | None) -> bool:
    return limit is not None and number > limit


def with_columns(settings: ChainSettings, columns: str) -> ChainSettings:
    """Return the settings of a stream that has these columns, in Spark's JSON."""
    return replace(settings, columns=columns)
