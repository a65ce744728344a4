"""The batches of one sink's table in the order of the ledger, for a reader that follows them without listing the table.

A position of the ledger names one batch for ever: numbers of batches begin again with another checkpoint, positions do not. Only
batches that stand and that every account shows are given out; a batch that a backfill gave the sink comes at its own position.
"""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field

from penstock.commit.publication import decision_in, holds_rows_of, settled_at
from penstock.core.backfill import Backfilled
from penstock.core.model import (
    AccountName,
    Adopted,
    BatchId,
    Decided,
    Entry,
    Nonce,
    OffsetRange,
    Position,
    Rewound,
    SinkName,
    Staged,
    Totals,
)
from penstock.errors import InputLost, Refused
from penstock.protocols import Ledger

MarkedAt = Callable[[AccountName], Position | None]
"""Returns the position up to which an account shows everything, None if it shows nothing yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableBatch:
    """One batch as the table has it. `pieces`: its files in the accounts that are read. `sources`: what it read itself.

    `table_rows`: how many rows the accounts had got with this batch.
    """

    position: Position
    nonce: Nonce
    batch_id: BatchId
    decided_at_ms: int
    schema: str
    sources: tuple[OffsetRange, ...]
    pieces: tuple[Staged, ...]
    table_rows: int
    is_backfilled: bool = False

    @property
    def totals(self) -> Totals:
        return sum((piece.totals for piece in self.pieces), Totals())


@dataclass(slots=True)
class _Look:
    """The ledger's tail at one moment, and the markers that were read since."""

    tail: Entry
    marked_at: MarkedAt
    _marks: dict[AccountName, Position | None] = field(default_factory=dict)

    def is_shown(self, batch: TableBatch) -> bool:
        return all((self._mark(account) or 0) >= batch.position for account in {piece.account for piece in batch.pieces})

    def _mark(self, account: AccountName) -> Position | None:
        if account not in self._marks:
            self._marks[account] = self.marked_at(account)
        return self._marks[account]


class TableBatches:
    """The batches of the table of `sink` in `accounts`. One process reads them; entries that it has read are kept."""

    def __init__(self, ledger: Ledger, *, sink: SinkName, accounts: Collection[AccountName], chosen: bool) -> None:
        """`chosen`: whether the accounts were named one by one, so that batches may have files in others."""
        self.ledger, self.sink = ledger, sink
        self._accounts, self._chosen = frozenset(accounts), chosen
        self._known: dict[Position, TableBatch | None] = {}

    def standing(self, tail: Entry, *, after: Position, until: Position) -> Iterator[TableBatch]:
        """Yield the batches at positions above `after` and up to `until` that stand as of `until`, oldest first.

        A later rewind changes nothing: `taken_back` tells of it. Raises InputLost where the ledger has forgotten a position.
        """
        acts = tuple((act, to) for act, to in self.rewinds(tail, after=after) if act <= until)
        for number in range(after + 1, min(until, tail.position) + 1):
            position = Position(number)
            batch = self._at(position, tail=tail)
            if batch is not None and (batch.is_backfilled or not any(to < position < act for act, to in acts)):
                yield batch

    def published(self, tail: Entry, *, after: Position, marked_at: MarkedAt) -> Iterator[TableBatch]:
        """Yield the batches above `after` that stand, up to the first that an account does not show yet.

        `tail` is read before the markers. Yields nothing while a rewind is being carried out. Raises as `standing`.
        """
        if tail.summary.rewinding_at is not None:
            return
        look = _Look(tail, marked_at)
        for batch in self.standing(tail, after=after, until=tail.position):
            if not self._is_published(batch, look):
                return
            yield batch

    def rewinds(self, tail: Entry, *, after: Position) -> Iterator[tuple[Position, Position]]:
        """Yield the acts above `after` that took batches from the sink: where each stands, and what it went back to."""
        at = tail.summary.rewound_at
        while at is not None and at > after and (act := self.ledger.read(at)) is not None:
            if isinstance(act.body, Rewound) and self.sink not in act.body.kept:
                yield at, act.body.to
            before = self.ledger.read(Position(at - 1))
            at = None if before is None else before.summary.rewound_at

    def taken_back(self, tail: Entry, *, until: Position) -> tuple[Position, tuple[TableBatch, ...]] | None:
        """Return the newest act above `until` that took back batches up to `until`, with these; None if there is none.

        Batches that the ledger has forgotten are not among them.
        """
        for act, to in self.rewinds(tail, after=until):
            if to < until:
                before = self.ledger.read(Position(act - 1))
                oldest = max(to, Position(self.oldest_retained(tail) - 1))
                taken = () if before is None else tuple(self.standing(before, after=oldest, until=until))
                if taken:
                    return act, taken
        return None

    def oldest_retained(self, tail: Entry) -> Position:
        """Return the oldest position that the ledger still has. Takes some 14 reads where it was pruned."""
        if self.ledger.read(Position(1)) is not None:
            return Position(1)
        absent, present = 1, tail.position
        while present - absent > 1:
            middle = Position((absent + present) // 2)
            absent, present = (middle, present) if self.ledger.read(middle) is None else (absent, middle)
        return present

    def rows_at(self, position: Position) -> int | None:
        """Return how many rows the table had got in its accounts up to `position`; None where the ledger does not tell."""
        entry = self.ledger.read(position)
        if entry is None:
            return 0 if position == 0 else None
        return self._rows(entry)

    def numbered(self, tail: Entry, batch_id: BatchId) -> Position | None:
        """Return the position of the present checkpoint's batch of that number that stands, None if there is none. Reads back."""
        acts = tuple(self.rewinds(tail, after=Position(0)))
        for entry in self.ledger.newest_first():
            if isinstance(entry.body, Adopted) and not entry.body.gaps:
                return None
            is_taken = any(to < entry.position < act for act, to in acts)
            if isinstance(entry.body, Decided) and not is_taken and decision_in(entry).batch.batch_id == batch_id:
                return entry.position
        return None

    def forget(self, *, until: Position) -> None:
        """Drop what is kept of the entries up to `until`: they were delivered."""
        self._known = {position: batch for position, batch in self._known.items() if position > until}

    def _rows(self, entry: Entry) -> int:
        totals = entry.summary.totals.get(self.sink, {})
        return sum(of.rows for account, of in totals.items() if account in self._accounts)

    def _is_published(self, batch: TableBatch, look: _Look) -> bool:
        summary = look.tail.summary
        backfill = summary.backfills.get(self.sink)
        if batch.is_backfilled and backfill is not None:
            return backfill.ended or batch.position < backfill.newest
        return batch.position <= settled_at(summary) or look.is_shown(batch)

    def _at(self, position: Position, *, tail: Entry) -> TableBatch | None:
        if position not in self._known:
            entry = tail if position == tail.position else self.ledger.read(position)
            if entry is None:
                raise self._forgotten(position, tail)
            self._known[position] = self._batch_of(entry)
        return self._known[position]

    def _batch_of(self, entry: Entry) -> TableBatch | None:
        """Return the batch that the entry gave the table, None if it gave no row to the accounts."""
        if not holds_rows_of(entry, self.sink):
            return None
        decision = decision_in(entry)
        pieces = decision.of_sink(self.sink)
        other = next((piece.account for piece in pieces if piece.account not in self._accounts), None)
        if other is not None and not self._chosen:
            raise Refused(
                f"Batch {decision.batch.batch_id} of pipeline {entry.pipeline!r} has rows in account {other!r}, which its file "
                f"no longer has in sink {self.sink!r}.",
                remedy="Put the account back there, or name the accounts to be read by the option accounts.",
            )
        own = tuple(piece for piece in pieces if piece.account in self._accounts)
        if not own:
            return None
        return TableBatch(
            position=entry.position,
            nonce=entry.nonce,
            batch_id=decision.batch.batch_id,
            decided_at_ms=entry.written_at_ms,
            schema=decision.schema_of(self.sink),
            sources=decision.batch.offsets,
            pieces=own,
            table_rows=self._rows(entry),
            is_backfilled=isinstance(entry.body, Backfilled),
        )

    def _forgotten(self, position: Position, tail: Entry) -> InputLost:
        oldest = self.oldest_retained(tail)
        first = next((found.batch_id for found in self.standing(tail, after=Position(oldest - 1), until=tail.position)), None)
        begin = "" if first is None else f"batch {first}, at "
        return InputLost(
            f"The ledger of pipeline {tail.pipeline!r} has forgotten the entries {position} to {oldest - 1}, which were not "
            f"read: it begins with {begin}position {oldest}.",
            remedy="Begin anew with a new checkpoint and the option startingBatch, and load what is older by `penstock.read`.",
        )
