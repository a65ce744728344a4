"""Kind, engine and unique indexes of a table, as the server's catalog describes them."""

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

from penstock.sql.mysql import statements as sql
from penstock.sql.mysql.connection import Connection

ENGINE = "InnoDB"
"""The engine whose tables a transaction covers."""

_TYPE_ALONE = re.compile(r"\w+(\([\d,]+\))?( unsigned)?( CHARACTER SET \w+)?( COLLATE \w+)?( NULL)?( DEFAULT NULL)?")


def kind_of(connection: Connection, table: str) -> tuple[str, str] | None:
    """Return the kind of the table (`table`, or the server's own word) and its engine. None if nothing has that name."""
    found = connection.execute(sql.TABLE_KIND, (table,)).fetchone()
    if found is None:
        return None
    kind, engine = found
    return "table" if kind == "BASE TABLE" else str(kind).lower(), str(engine)


def uniques_of(connection: Connection, table: str) -> Mapping[str, frozenset[str]]:
    """Return the columns, in lower case, of each unique index by name; of indexes on prefixes or expressions, none."""
    return _whole(connection.execute(sql.TABLE_UNIQUES, (table,)).fetchall())


def has_more_than_type(connection: Connection, table: str, column: str) -> bool:
    """Return whether the column's definition has more than a type, such as a comment, a CHECK or INVISIBLE; so if in doubt."""
    _, created = connection.execute(f"SHOW CREATE TABLE {sql.quoted(table)}").fetchone()
    begins = f"  {sql.quoted(column)} ".lower()
    [line, *_] = [*(line for line in created.splitlines() if line.lower().startswith(begins)), ""]
    return _TYPE_ALONE.fullmatch(line[len(begins) :].removesuffix(",")) is None


def has_triggers(connection: Connection, table: str) -> bool:
    """Return whether the table has triggers that the user may see."""
    return connection.execute(sql.TABLE_TRIGGER, (table,)).fetchone() is not None


def _whole(rows: Iterable[Sequence[Any]]) -> dict[str, frozenset[str]]:
    whole = {}
    for index, parts in groupby(rows, key=itemgetter(0)):
        columns = [(name, part) for _, name, part in parts]
        are_whole = all(name is not None and part is None for name, part in columns)
        whole[index] = frozenset(name.lower() for name, _ in columns) if are_whole else frozenset()
    return whole
