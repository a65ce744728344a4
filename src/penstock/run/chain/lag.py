"""The lag behind tables that other pipelines fill, and what they lack of a batch that was read."""

import json
from contextlib import closing
from dataclasses import replace

from penstock.commit.upkeep import RETAINED_ENTRIES
from penstock.core.model import Entry, OffsetRange, Position, SourceName
from penstock.errors import Refused
from penstock.run.chain.offset import ChainOffset, offset_in
from penstock.run.chain.stream import TableStream
from penstock.run.chain.table import ChainedTable, open_chained
from penstock.source.chain.lag import TableLag
from penstock.source.chain.settings import ChainSettings

_NO_COLUMNS = '{"type": "struct", "fields": []}'
_NEAR_PART = 4
"""Loss is near in the last quarter of what a ledger retains."""


def lag_of_table(name: SourceName, settings: ChainSettings, delivered: str | None, *, now_ms: int) -> TableLag:
    """Return the lag behind the offset `delivered`, as Spark logs it; None if nothing was delivered yet.

    Raises what a start would be refused by, such as a rewind of the first pipeline behind that offset.
    """
    table = open_chained(settings)
    with closing(TableStream(settings, lambda _: table)) as stream:
        at = offset_in(delivered)
        tail = table.tail() if at is None else stream.required_tail(at)
        named = f"{table.pipeline}/{table.sink}"
        if tail is None:
            return TableLag(source=name, table=named, records=0)
        if at is None:
            return _lag(name, table, tail, _before_all(table), now_ms=now_ms)
        stream.require_standing(tail, after=Position(0), end=at)
        return _lag(name, table, tail, at, now_ms=now_ms)


def missing_of_table(settings: ChainSettings, offsets: OffsetRange) -> str | None:
    """Return why a batch cannot be read again by its offsets, as the end of a sentence; None if its entries are all there.

    No file is looked at. Raises what opening the table raises.
    """
    start, end = (json.loads(at) if at else {} for at in (offsets.start, offsets.end))
    with closing(TableStream(replace(settings, columns=_NO_COLUMNS, has_fixed_columns=True))) as stream:
        try:
            stream.planned(start, end)
        except Refused as refused:
            return refused.message
    return None


def _before_all(table: ChainedTable) -> ChainOffset:
    return ChainOffset(ledger_id=None, sink=table.sink, begin=Position(0), position=Position(0))


def _lag(name: SourceName, table: ChainedTable, tail: Entry, at: ChainOffset, *, now_ms: int) -> TableLag:
    batches = table.batches
    oldest = batches.oldest_retained(tail) if at.position < tail.position else Position(at.position + 1)
    after = max(at.position, Position(oldest - 1))
    first = next(batches.standing(tail, after=after, until=tail.position), None)
    waiting = max(0, (batches.rows_at(tail.position) or 0) - at.rows)
    named = f"{table.pipeline}/{table.sink}"
    if first is None:
        return TableLag(source=name, table=named, records=0, lost=waiting if after > at.position else 0)
    before = (batches.rows_at(first.position) or 0) - first.totals.rows
    lost = max(0, before - at.rows) if after > at.position else 0
    left = max(0, first.position + RETAINED_ENTRIES - tail.position)
    apart = tail.position - first.position
    pace_ms = (tail.written_at_ms - first.decided_at_ms) / apart if apart else 0
    return TableLag(
        source=name,
        table=named,
        records=waiting - lost,
        behind_ms=max(0, now_ms - first.decided_at_ms),
        entries_left=left,
        loss_in_ms=int(left * pace_ms) if pace_ms > 0 else None,
        is_near_loss=left < RETAINED_ENTRIES // _NEAR_PART,
        lost=lost,
        forgotten=after - at.position if lost else 0,
    )
