"""What the server's catalog says of a table."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

from penstock.sql.mysql import statements as sql
from penstock.sql.mysql.connection import Connection

ENGINE = "InnoDB"
"""The one whose tables a transaction covers."""


def kind_of(connection: Connection, table: str) -> tuple[str, str] | None:
    """Whether it is a table or, in the server's words, something else; and its engine. None if there is nothing of that name."""
    found = connection.execute(sql.TABLE_KIND, (table,)).fetchone()
    if found is None:
        return None
    kind, engine = found
    return "table" if kind == "BASE TABLE" else str(kind).lower(), str(engine)


def uniques_of(connection: Connection, table: str) -> Mapping[str, frozenset[str]]:
    """The columns, in lower case, of each index that tells rows apart; without those on parts of columns and on expressions."""
    return _whole(connection.execute(sql.TABLE_UNIQUES, (table,)).fetchall())


def _whole(rows: Iterable[Sequence[Any]]) -> dict[str, frozenset[str]]:
    whole = {}
    for index, parts in groupby(rows, key=itemgetter(0)):
        columns = [(name, part) for _, name, part in parts]
        if all(name is not None and part is None for name, part in columns):
            whole[index] = frozenset(name.lower() for name, _ in columns)
    return whole
