"""All SQL of the postgres sink. When a statement runs is decided elsewhere.

The schema of the user's table has two tables of Penstock's own: `penstock_marker` with one row per pipeline and sink, and
`penstock_batch` with one row for each of the last batches. The view `penstock_offsets` shows the marker's offsets one by one.
Users may read all three with their own SQL. Digests are 16 hexadecimal digits, because they do not fit a bigint.
"""

# ruff: noqa: S608 - every name in a statement is quoted or our own, every value is bound

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from psycopg.sql import SQL, Composed, Identifier, Literal, Placeholder

from penstock.sink.table.marker_store import (
    BATCH_TABLE,
    DBAPI_MARKER_TABLE,
    MARKER_TABLE,
    OWNERS_BY_DBAPI,
    MarkerStatements,
)
from penstock.sink.table.script import Syntax
from penstock.sink.table.table_statements import StagedTableStatements
from penstock.sql.postgres import members
from penstock.sql.table_name import in_double_quotes

OFFSETS_VIEW = "penstock_offsets"
OWN_TABLES = frozenset({MARKER_TABLE, BATCH_TABLE, "penstock_ledger", "penstock_history", OFFSETS_VIEW})

STAGE = '"pg_temp"."penstock_stage"'
ANALYZE_STAGE = f"ANALYZE {STAGE}"
COUNT_STAGE = f"SELECT count(*) FROM {STAGE}"
DROP_STAGE = f"DROP TABLE IF EXISTS {STAGE}"
"""Needed because several sinks stage one after the other in one transaction of a ledger."""
SAVEPOINT = "SAVEPOINT penstock_rehearsal"
ROLLBACK_TO_SAVEPOINT = "ROLLBACK TO SAVEPOINT penstock_rehearsal"

DBAPI_SCHEMAS = SQL("""
SELECT n.nspname::text FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relname = {marker} AND c.relkind IN ('r', 'p')
  AND has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'SELECT') ORDER BY 1
""").format(marker=Literal(DBAPI_MARKER_TABLE))
"""Schemas with dbapi markers that the role may read. The dbapi sink uses the first schema of some role's search path."""

PRIVILEGES = SQL(
    "SELECT has_database_privilege(current_database(), 'TEMP'), has_schema_privilege(%s, 'CREATE'), current_user::text"
)
PRIVILEGES_WITH_TABLE = SQL("SELECT has_table_privilege(%s::oid, %s)")

WEAK_MEMBERS = SQL(members.WEAK_MEMBERS)

MEMBER_COLUMNS = SQL("""
SELECT m.relname::text, b.named, a.attname::text, a.attgenerated <> ''
FROM ({members}) b
JOIN pg_catalog.pg_class m ON m.oid = b.oid
JOIN pg_catalog.pg_attribute a ON a.attrelid = m.oid AND a.attnum > 0 AND NOT a.attisdropped
JOIN pg_catalog.pg_attribute p ON p.attrelid = {oid} AND p.attname = a.attname AND NOT p.attisdropped
WHERE (a.attnotnull AND NOT p.attnotnull) OR (a.attgenerated <> '' AND p.attgenerated = '')
ORDER BY m.oid, a.attnum
""").format(members=SQL(members.MEMBERS).format(oid=Placeholder("oid")), oid=Placeholder("oid"))
"""Columns of members that accept less than the table's own: only there are they NOT NULL or generated."""

RELATIVES = SQL("""
WITH RECURSIVE below (oid) AS (
    SELECT inhrelid FROM pg_catalog.pg_inherits WHERE inhparent = %(oid)s
    UNION SELECT i.inhrelid FROM pg_catalog.pg_inherits i JOIN below b ON i.inhparent = b.oid
), above (oid) AS (
    SELECT inhparent FROM pg_catalog.pg_inherits WHERE inhrelid = %(oid)s
    UNION SELECT i.inhparent FROM pg_catalog.pg_inherits i JOIN above a ON i.inhrelid = a.oid
) SELECT n.nspname::text, c.relname::text
FROM (SELECT oid FROM below UNION SELECT oid FROM above) r
JOIN pg_catalog.pg_class c ON c.oid = r.oid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
JOIN pg_catalog.pg_class m ON m.relnamespace = n.oid AND m.relname = {marker} AND m.relkind IN ('r', 'p')
WHERE has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(m.oid, 'SELECT')
""").format(marker=Literal(MARKER_TABLE))
"""Tables above and below this one, at any depth, in schemas where the role may read the markers."""

DEPENDENTS = SQL("""
SELECT a.attname::text, CASE WHEN c.relkind IN ('v', 'm') THEN
         CASE c.relkind WHEN 'v' THEN 'view ' ELSE 'materialized view ' END || c.oid::regclass::text
       ELSE pg_catalog.pg_describe_object(d.classid, d.objid, d.objsubid) END AS dependent
FROM pg_catalog.pg_depend d
JOIN pg_catalog.pg_attribute a ON a.attrelid = d.refobjid AND a.attnum = d.refobjsubid
LEFT JOIN pg_catalog.pg_rewrite r ON d.classid = 'pg_catalog.pg_rewrite'::regclass AND r.oid = d.objid
LEFT JOIN pg_catalog.pg_class c ON c.oid = r.ev_class
LEFT JOIN pg_catalog.pg_attrdef f ON d.classid = 'pg_catalog.pg_attrdef'::regclass AND f.oid = d.objid
WHERE d.refclassid = 'pg_catalog.pg_class'::regclass AND d.refobjid = %s AND a.attname = ANY(%s)
  AND (d.classid = ANY(ARRAY['pg_rewrite', 'pg_trigger', 'pg_policy', 'pg_proc', 'pg_publication_rel']::regclass[])
       OR (f.adnum <> a.attnum AND EXISTS (SELECT 1 FROM pg_catalog.pg_attribute g
           WHERE g.attrelid = f.adrelid AND g.attnum = f.adnum AND g.attgenerated <> '')))
GROUP BY 1, 2 ORDER BY 1, 2
""")
"""What keeps PostgreSQL from giving a column another type: views, rules, triggers, policies, functions, and generated columns."""

HAS_ROW_SECURITY = SQL("SELECT pg_catalog.row_security_active(%s::oid)")

TABLE_SCHEMA = SQL("""
SELECT c.oid, c.relkind::text, c.relpersistence::text,
       (SELECT coalesce(json_agg(json_build_array(r.rulename, r.ev_type, r.is_instead) ORDER BY r.oid), '[]')
        FROM pg_catalog.pg_rewrite r WHERE r.ev_class = c.oid AND r.ev_type <> '1'),
       (SELECT coalesce(json_agg(json_build_array(
                   a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod), a.attnotnull,
                   a.attgenerated <> '' OR a.attidentity = 'a', a.atthasdef OR a.attidentity <> '',
                   (SELECT o.collname FROM pg_catalog.pg_collation o WHERE o.oid = a.attcollation AND NOT o.collisdeterministic)
               ) ORDER BY a.attnum), '[]')
        FROM pg_catalog.pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped),
       (SELECT coalesce(json_agg(u.names), '[]') FROM ({uniques}) u),
       (SELECT coalesce(json_agg(json_build_array(u.index, u.names) ORDER BY u.index), '[]') FROM ({blind_uniques}) u),
       EXISTS (SELECT 1 FROM pg_catalog.pg_inherits i WHERE i.inhparent = c.oid),
       (SELECT coalesce(json_agg(json_build_array(w.name, w.named, w.parent, w.is_partition, w.kind, w.persistence)
                                 ORDER BY w.oid), '[]')
        FROM ({weak_members}) w)
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = {schema} AND c.relname = {table}
""")
"""All that the catalog says of a table, in one query: every publishing transaction asks, and each query is a round trip."""

_OFFSETS = """
SELECT marker.table_name, marker.pipeline, marker.sink, source.value ->> 'source' AS source,
       source.value -> 'end' AS end_offset, marker.batch_id, marker.position, marker.published_at
FROM {marker} AS marker CROSS JOIN LATERAL jsonb_array_elements(marker.offsets::jsonb) AS source
"""


def owners_of_dbapi(schema: str) -> Composed:
    """Return the query for the dbapi sink's markers in `schema`: pipelines, sinks and the tables that they fill."""
    return SQL(OWNERS_BY_DBAPI).format(schema=Literal(schema), marker=Identifier(schema, DBAPI_MARKER_TABLE))


@dataclass(frozen=True, slots=True)
class OwnStatements(MarkerStatements):
    """The statements about Penstock's own tables in `schema`."""

    text = "text"
    types: ClassVar[Mapping[str, str]] = {"format_version": "integer", "published_at": "timestamptz"}
    adding = "ADD COLUMN IF NOT EXISTS"
    upserts = True
    for_update = " FOR UPDATE"
    percent = "%%"

    def named(self, table: str) -> str:
        return Identifier(self.schema, table).as_string()

    @property
    def creates(self) -> Mapping[str, tuple[str, ...]]:
        """Create each table, by name; with the markers a view for people, of the offsets up to which tables are filled."""
        tables = super(OwnStatements, self).creates
        view = f"CREATE VIEW {self.named(OFFSETS_VIEW)} AS {_OFFSETS.format(marker=self.named(MARKER_TABLE))}"
        return {MARKER_TABLE: (tables[MARKER_TABLE], view), BATCH_TABLE: (tables[BATCH_TABLE],)}

    @property
    def advance(self) -> str:
        return f"WITH marked AS ({self.write_marker}), noted AS ({self.write_batch}) {self.forget_batches('past')}"


# --- the user's table


@dataclass(frozen=True, slots=True)
class TableStatements(StagedTableStatements):
    """The statements about the user's table and the staging table.

    `casts` are expressions in which `{}` is a staged column. Where one is `{}`, assignment converts the value, or refuses what
    does not fit. Types in them are from `storage` or the server's format_type(), never the user's text.
    """

    stage = STAGE
    null = ""
    locking: ClassVar[str] = " FOR UPDATE OF t"

    def quoted(self, name: str) -> str:
        return in_double_quotes(name)

    @property
    def _number(self) -> str:
        return self.quoted(self.number)

    def hold(self) -> str:
        return f"LOCK TABLE {self.name} IN ROW EXCLUSIVE MODE"

    def create_stage(self, staged: Sequence[str]) -> str:
        """Create the session's own staging table of types that have Arrow's binary form; it ends with the transaction."""
        columns = ", ".join([f"{self._number} bigint", *self._staged_defined(staged)])
        return f'CREATE TEMPORARY TABLE "penstock_stage" ({columns}) ON COMMIT DROP'

    def copy(self) -> str:
        """COPY into the staging table."""
        return f"COPY {STAGE} ({self._number}, {self._list(self.staged)}) FROM STDIN (FORMAT BINARY)"

    def copy_in(self) -> str:
        """COPY into the table itself."""
        return f"COPY {self.name} ({self._list(self.columns)}) FROM STDIN (FORMAT BINARY)"

    def insert_cast(self, casts: Sequence[str]) -> str:
        return f"INSERT INTO {self.name} ({self._list(self.columns)}) SELECT {self._cast(casts, self.columns)} FROM {STAGE}"

    def upsert(self, casts: Sequence[str]) -> str:
        """Insert or update the last staged row of each key, unless it deletes.

        Select how many were written, and how many of them replaced one.
        """
        changes = ", ".join(f"{self.quoted(name)} = excluded.{self.quoted(name)}" for name in self.others or self.key)
        chosen = f"{self._insert_chosen(casts, last=True)}{self._stays('s')}"
        upsert = f"{chosen} ON CONFLICT ({self._list(self.key)}) DO UPDATE SET {changes}"
        return (
            f"WITH moved AS ({upsert} RETURNING xmax <> 0 AS replaced) "
            "SELECT count(*), count(*) FILTER (WHERE replaced) FROM moved"
        )

    def insert_if_absent(self, casts: Sequence[str]) -> str:
        """Insert the first staged row of each key that the table does not have."""
        return f"{self._insert_chosen(casts, last=False)} ON CONFLICT ({self._list(self.key)}) DO NOTHING"

    def lock_replaced(self, casts: Sequence[str]) -> str:
        """Select and lock the table's rows that have a key of the batch: those that will be replaced or deleted."""
        keys = f"SELECT {self._cast(casts, self.key)} FROM {STAGE}"
        return f"SELECT {self._selected()} FROM {self.name} WHERE ({self._list(self.key)}) IN ({keys}) FOR UPDATE"

    def delete(self, casts: Sequence[str]) -> str:
        """Delete the table's rows for whose key the last staged row deletes."""
        keys = f"SELECT {self._cast(casts, self.key, 's')} FROM {STAGE} s WHERE {self._is_chosen(casts, last=True)}"
        return f"DELETE FROM {self.name} WHERE ({self._list(self.key)}) IN ({keys} AND {self._deletes('s')})"

    def read_superseded(self, casts: Sequence[str]) -> str:
        """Select the staged rows that do not get into the table: those that are not the last of their key, or that delete."""
        return self._read_staged(f"NOT {self._is_chosen(casts, last=True)}{self._or_deletes('s')}")

    def read_skipped(self, casts: Sequence[str]) -> str:
        """Select the staged rows that are not the first of their key, and the first ones whose key the table has."""
        first = self._is_chosen(casts, last=False)
        same = " AND ".join(f"t.{self.quoted(name)} = {self._cast(casts, [name], 's')}" for name in self.key)
        there = f"EXISTS (SELECT 1 FROM {self.name} t WHERE {same})"
        return f"{self._read_staged(f'NOT {first}')} UNION ALL {self._read_staged(f'{first} AND {there}')}"

    def _read_staged(self, which: str) -> str:
        return f"SELECT {self._selected()} FROM {STAGE} s WHERE {which}"

    def _insert_chosen(self, casts: Sequence[str], *, last: bool) -> str:
        return f"{self.insert_cast(casts)} s WHERE {self._is_chosen(casts, last=last)}"

    def _is_chosen(self, casts: Sequence[str], *, last: bool) -> str:
        """Return the condition that a staged row `s` is the last or the first of its key."""
        chosen = (
            f"SELECT {'max' if last else 'min'}({self._number}) AS chosen FROM {STAGE} GROUP BY {self._cast(casts, self.key)}"
        )
        return f"EXISTS (SELECT 1 FROM ({chosen}) c WHERE c.chosen = s.{self._number})"

    def _cast(self, casts: Sequence[str], names: Sequence[str], of: str = "") -> str:
        prefix, by_name = f"{of}." if of else "", dict(zip(self.columns, casts, strict=True))
        return ", ".join(by_name[name].format(prefix + self.quoted(name)) for name in names)


# --- the user's own SQL

_HIDDEN = r"""
--[^\n]*
| /\*(?:[^*/]|\*(?!/)|/(?!\*))*\*/
| (?<![\w$])[eE]'(?:[^'\\]|''|\\.)*'
| '(?:[^']|'')*'
| "(?:[^"]|"")*"
| (?<![\w$])\$(?P<tag>(?:[^\W\d]\w*)?)\$.*?\$(?P=tag)\$
"""
_BROKEN = r"""/\*|\*/|'|"|(?<![\w$])\$(?:[^\W\d]\w*)?\$"""

SYNTAX = Syntax(
    database="PostgreSQL",
    hidden=re.compile(_HIDDEN, re.VERBOSE | re.DOTALL),
    broken=re.compile(_BROKEN),
    starts=frozenset({"INSERT", "UPDATE", "DELETE", "MERGE", "WITH"}),
)
"""PostgreSQL's lexical rules, from its manual, "Lexical Structure". A comment inside a comment is refused."""
