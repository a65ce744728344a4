"""All SQL of the dbapi sink: only what every database with tables understands, in the parameter style of any driver.

Two tables lie beside the user's, `penstock_dbapi_marker` and `penstock_dbapi_batch`; Penstock's native sinks have others. Their
names need no quotes anywhere. Users who want other column types create them themselves: docs/howto/dbapi.md has the statements.
"""

# ruff: noqa: S608 - every name in a statement is quoted or our own, every value is bound

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import ClassVar, Final, NamedTuple

from penstock.sink.table import table_statements
from penstock.sink.table.marker_store import BATCH_TABLE as NATIVE_BATCH_TABLE
from penstock.sink.table.marker_store import DBAPI_MARKER_TABLE, OWNERS_BY_DBAPI, MarkerStatements
from penstock.sink.table.marker_store import MARKER_TABLE as NATIVE_MARKER_TABLE

STYLES: Final[Mapping[str, Callable[[int], str]]] = {
    "qmark": lambda _: "?",
    "numeric": lambda at: f":{at}",
    "numeric_dollar": lambda at: f"${at}",
    "named": lambda at: f":p{at}",
    "format": lambda _: "%s",
    "pyformat": lambda at: f"%(p{at})s",
}
"""How each style writes the parameter at a place, counted from 1. `numeric_dollar` is ADBC's for PostgreSQL."""

_NAMED = re.compile(r":([a-z_]+)")


class Value(NamedTuple):
    """A place in a statement where a value is bound by name."""

    name: str


@dataclass(frozen=True, slots=True)
class Sql:
    """One statement with values, as a sequence of texts and values. A statement without values is a `str`."""

    parts: tuple[str | Value, ...]

    def rendered(self, style: str) -> tuple[str, Sequence[str]]:
        """Return the text in that parameter style, and the names of the values in their order."""
        return _rendered(self, style)


@cache
def statement(text: str) -> Sql:
    """Parse a statement of Penstock's own, in which `:name` stands for a value."""
    pieces = _NAMED.split(text)
    return Sql(tuple(Value(piece) if at % 2 else piece for at, piece in enumerate(pieces)))


def joined(separator: str, parts: Sequence[Sql]) -> Sql:
    """Join statements by `separator`."""
    together: list[str | Value] = []
    for at, part in enumerate(parts):
        together += [*([separator] if at else []), *part.parts]
    return Sql(tuple(together))


@cache
def _rendered(sql: Sql, style: str) -> tuple[str, Sequence[str]]:
    texts, names = [], []
    for part in sql.parts:
        if isinstance(part, Value):
            names.append(part.name)
            texts.append(STYLES[style](len(names)))
        else:
            texts.append(part.replace("%", "%%") if style in {"format", "pyformat"} else part)
    return "".join(texts), names


# --- the statements

MARKER_TABLE, BATCH_TABLE = DBAPI_MARKER_TABLE, "penstock_dbapi_batch"
QUOTES: Final = (('"', '"'), ("`", "`"), ("[", "]"), ("", ""))
"""What begins and ends a quoted name. The last one, no quotes, is for databases that fold unquoted names."""

INSERT, INSERT_OR_ABORT = "INSERT INTO", "INSERT OR ABORT INTO"
"""The second is SQLite's: a conflict is an error, whatever the table declares. The first follows `ON CONFLICT REPLACE`."""
IS_SQLITE = "SELECT sqlite_version()"
"""Fails in any other database."""

MOST_VALUES, MOST_ROWS = 900, 200
"""What SQLite takes in one statement: the smallest limits of all databases."""

CREATE_MARKER_TABLE = """CREATE TABLE penstock_dbapi_marker (
    pipeline VARCHAR(100) NOT NULL, sink VARCHAR(100) NOT NULL, table_name VARCHAR(500) NOT NULL, way VARCHAR(20) NOT NULL,
    format_version INTEGER NOT NULL,
    at_position BIGINT NOT NULL, generation BIGINT, query_id VARCHAR(100), batch_id BIGINT, offsets TEXT, row_schema TEXT,
    rows_decided BIGINT NOT NULL, digest_decided VARCHAR(16) NOT NULL,
    rows_before BIGINT NOT NULL, digest_before VARCHAR(16) NOT NULL,
    rows_after BIGINT NOT NULL, digest_after VARCHAR(16) NOT NULL,
    turns BIGINT NOT NULL, trial TEXT, ledger_id VARCHAR(32),
    PRIMARY KEY (pipeline, sink)
)"""
CREATE_BATCH_TABLE = """CREATE TABLE penstock_dbapi_batch (
    pipeline VARCHAR(100) NOT NULL, sink VARCHAR(100) NOT NULL, at_position BIGINT NOT NULL,
    generation BIGINT NOT NULL, query_id VARCHAR(100) NOT NULL, batch_id BIGINT NOT NULL, offsets TEXT NOT NULL,
    row_count BIGINT NOT NULL, digest VARCHAR(16) NOT NULL,
    PRIMARY KEY (pipeline, sink, at_position)
)"""

_COLUMNS = {"write": "way", "position": "at_position", "schema": "row_schema", "rows": "row_count"}
"""Columns with other names than in the markers of native sinks: names that need no quotes in any database."""


@dataclass(frozen=True, slots=True)
class OwnStatements(MarkerStatements):
    """The statements about the two tables, to be parsed by `statement`."""

    text = "VARCHAR(32)"
    types: ClassVar[Mapping[str, str]] = {}
    adding = "ADD"

    def named(self, table: str) -> str:
        return {NATIVE_MARKER_TABLE: MARKER_TABLE, NATIVE_BATCH_TABLE: BATCH_TABLE}[table]

    def quoted(self, name: str) -> str:
        return _COLUMNS.get(name, name)

    def bound(self, name: str) -> str:
        return f":{name}"

    @property
    def creates(self) -> Mapping[str, str]:
        return {MARKER_TABLE: CREATE_MARKER_TABLE, BATCH_TABLE: CREATE_BATCH_TABLE}

    @property
    def fence(self) -> tuple[str, ...]:
        """Lock the marker by an UPDATE of its row: a lock that all databases have."""
        return (f"UPDATE {MARKER_TABLE} SET turns = turns + 1 WHERE {self.which}",)

    @property
    def make_marker(self) -> str:
        return f"{self._into_marker('turns')} VALUES ({self._values}, 0)"


OWN = OwnStatements()
ADD_LEDGER_ID = OWN.add_ledger_id
HAS_LEDGER_ID = f"SELECT ledger_id FROM {MARKER_TABLE} WHERE 1 = 0"
"""Fails where an older Penstock created the table."""
READ_TRIAL = statement(f"SELECT trial FROM {MARKER_TABLE} WHERE {OWN.which}")
WRITE_TRIAL = statement(f"UPDATE {MARKER_TABLE} SET trial = :trial WHERE {OWN.which}")
DELETE_BATCH = statement(f"DELETE FROM {BATCH_TABLE} WHERE {OWN.which} AND at_position = :position")
DELETE_MARKER = statement(f"DELETE FROM {MARKER_TABLE} WHERE {OWN.which}")


def is_there(name: str) -> str:
    """Return a query that fails unless a table of that name, already quoted, exists."""
    return f"SELECT 1 FROM {name} WHERE 1 = 0"


@dataclass(frozen=True, slots=True)
class TableStatements(table_statements.TableStatements):
    """The statements about the user's table; `quotes` begin and end a name.

    `inserts`: the words with which an INSERT begins, as `inserts_of` found them.
    """

    quotes: tuple[str, str] = ("", "")
    inserts: str = INSERT
    null = ""

    def quoted(self, name: str) -> str:
        begin, end = self.quotes
        return f"{begin}{name.replace(end, end * 2) if end else name}{end}"

    @property
    def name(self) -> str:
        """The quoted name of the table; `schema.table` is quoted part by part."""
        return ".".join(map(self.quoted, self.table.split(".")))

    @property
    def native_marker(self) -> str:
        """The marker table of Penstock's native sink for this database, in the schema of the user's table."""
        return ".".join([*map(self.quoted, self.table.split(".")[:-1]), NATIVE_MARKER_TABLE])

    @property
    def native_owners(self) -> str:
        """Read who fills which table of that schema by the native sink. The schema is left empty."""
        return OWNERS_BY_DBAPI.format(schema="''", marker=self.native_marker)

    @property
    def insert(self) -> Sql:
        """Insert one row, whose values are `c<place of the column>`."""
        values = joined(", ", [Sql((Value(f"c{at}"),)) for at in range(len(self.columns))])
        return Sql((f"{self.inserts} {self.name} ({self._list(self.columns)}) VALUES (", *values.parts, ")"))

    @property
    def count(self) -> str:
        return f"SELECT count(*) FROM {self.name}"

    @property
    def fits(self) -> str:
        """Fail unless the table has the columns. Qualified: SQLite takes an unknown quoted name for a text otherwise."""
        return f"SELECT {self._list(self.columns, 'rows_of')} FROM {self.name} rows_of WHERE 1 = 0"

    @property
    def rows_at_once(self) -> int:
        """The most rows that `present` can ask for."""
        return min(MOST_ROWS, MOST_VALUES // max(1, len(self.key)))

    def present(self, rows: int) -> Sql:
        """Read the indexes, from 0, of those rows whose key is in the table; values are `r<row>k<place in the key>`."""
        return joined(" UNION ALL ", [self._has(row) for row in range(rows)])

    def _has(self, row: int) -> Sql:
        equal = [Sql((f"{self.quoted(name)} = ", Value(f"r{row}k{at}"))) for at, name in enumerate(self.key)]
        return Sql((f"SELECT {row} FROM {self.name} WHERE ", *joined(" AND ", equal).parts))
