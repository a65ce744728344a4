"""What a task says of rows for tables that are not open yet, in place of staging them. No decision has such a piece."""

from collections.abc import Iterable, Mapping
from typing import Final

from penstock.core.model import AccountName, Attempt, SinkName, Staged, Totals

_KEY: Final = "unopened"


def unopened(sink: SinkName, table: AccountName, attempt: Attempt, *, rows: int) -> Staged:
    """Return the message that `rows` rows wait for `table` to be opened."""
    return Staged(sink=sink, account=table, name="", attempt=attempt.token, totals=Totals(rows=rows), ref={_KEY: True})


def unopened_tables(pieces: Iterable[Staged]) -> Mapping[SinkName, list[AccountName]]:
    """Return the tables that have to be opened, by sink; empty if everything is staged."""
    found: dict[SinkName, dict[AccountName, None]] = {}
    for piece in pieces:
        if _KEY in piece.ref:
            found.setdefault(piece.sink, {})[piece.account] = None
    return {sink: list(tables) for sink, tables in found.items()}
