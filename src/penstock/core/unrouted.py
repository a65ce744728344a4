"""What a task says of rows that a sink leaves out by `unrouted: drop`: they are counted. No decision has such a piece."""

from collections.abc import Iterable
from typing import Final

from penstock.core.dropped_rows import DroppedRows, sum_of
from penstock.core.model import AccountName, Attempt, SinkName, SourceName, Staged, Totals

_KEY: Final = "unrouted"
_SINKS: Final = "sinks."
"""Begins the key of a sink among sources, of whose names none has a dot."""


def unrouted(sink: SinkName, attempt: Attempt, *, rows: int) -> Staged:
    """Return the message that `rows` rows are in no table of the sink, and were left out."""
    return Staged(sink=sink, account=AccountName(""), name="", attempt=attempt.token, totals=Totals(rows=rows), ref={_KEY: True})


def without_unrouted(pieces: Iterable[Staged]) -> tuple[tuple[Staged, ...], DroppedRows]:
    """Return the pieces without such messages, and what these say."""
    staged = list[Staged]()
    dropped: DroppedRows = {}
    for piece in pieces:
        if _KEY in piece.ref:
            dropped = sum_of(dropped, {SourceName(_SINKS + piece.sink): {_KEY: piece.totals.rows}})
        else:
            staged.append(piece)
    return tuple(staged), dropped


def of_sources(dropped: DroppedRows) -> DroppedRows:
    """Return the part of `dropped` that rules of sources dropped."""
    return {source: rules for source, rules in dropped.items() if not source.startswith(_SINKS)}
