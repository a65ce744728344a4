"""Ledgers that have seen many batches."""

import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path

from penstock.core.codec import encode_document, encode_entry
from penstock.core.model import Entry, Generation, PipelineName, Position
from penstock.testing.entries import opened_entry
from tests.crash.shop import connected

OLD_ENTRIES = 20_998
"""The next run opens at position 20,999 and decides at 21,000, where entries below 1,000 are pruned."""


def write_old_ledger(state: Path, kind: str, shop: str | None) -> None:
    """The first and the last entries of a ledger of runs that delivered nothing."""
    entries = [*old_entries(range(1, 6)), *old_entries(range(OLD_ENTRIES - 8, OLD_ENTRIES + 1))]
    state.mkdir(parents=True)
    if kind in {"mysql", "postgres"}:
        write_old_table(str(shop), entries)
        return
    if kind == "sqlite":
        write_old_database(state / "ledger.db", entries)
        return
    for entry in entries:
        path = state / "ledger" / "entries" / f"{entry.position // 1000:09d}" / f"{entry.position:012d}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encode_entry(entry))
    hint = encode_document("penstock.ledger.hint", 1, {"position": OLD_ENTRIES - 6})
    (state / "ledger" / "hint").write_bytes(hint)


def old_entries(positions: range) -> Iterator[Entry]:
    first = opened_entry(pipeline=PipelineName("crash"))
    for position in positions:
        yield Entry(
            pipeline=first.pipeline,
            position=Position(position),
            generation=Generation(position),
            nonce=first.nonce,
            written_at_ms=0,
            body=first.body,
            summary=first.summary,
        )


def write_old_table(url: str, entries: Sequence[Entry]) -> None:
    columns = "pipeline varchar(255), position bigint, entry text NOT NULL, PRIMARY KEY (pipeline, position)"
    with connected(url) as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE TABLE penstock_ledger ({columns})")
        rows = [(entry.pipeline, entry.position, encode_entry(entry).decode()) for entry in entries]
        cursor.executemany("INSERT INTO penstock_ledger VALUES (%s, %s, %s)", rows)
        connection.commit()


def write_old_database(path: Path, entries: Sequence[Entry]) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute(
            "CREATE TABLE penstock_ledger (position INTEGER PRIMARY KEY, pipeline TEXT NOT NULL, entry TEXT NOT NULL)"
        )
        rows = [(entry.position, entry.pipeline, encode_entry(entry).decode()) for entry in entries]
        connection.executemany("INSERT INTO penstock_ledger VALUES (?, ?, ?)", rows)
    connection.close()
