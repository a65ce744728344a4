"""Schema of the user's table: read from the catalog, and checked to store every row without loss."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from psycopg.sql import SQL, Composed, Literal

from penstock.core.model import SinkName
from penstock.errors import Refused, Usage
from penstock.sink.postgres import statements as sql
from penstock.sink.postgres.members import (
    Member,
    kind_named,
    member_of,
    require_fitting_members,
    require_lasting_members,
    unlogged,
)
from penstock.sink.postgres.row_validator import RowValidator
from penstock.sink.postgres.statements import OWN_TABLES, TableStatements
from penstock.sink.postgres.storage import STORAGES, longest_text, storage_of
from penstock.sink.table.columns import Alter, Columns, Lengths, TableColumn, lengths_of, require_columns, require_keyed, sizes_of
from penstock.sink.table.target import BY_KEY, PRIVILEGES, Target, not_a_table
from penstock.sql.postgres.database import Connection
from penstock.sql.postgres.names import quoted_table, require_name, split_name
from penstock.sql.postgres.statements import UNIQUES
from penstock.sql.table_name import in_double_quotes

MAX_COLUMNS = 1599
"""One less than PostgreSQL's own limit: the staging table has one more column."""
_ALTER = Alter(retype="ALTER TABLE {table} ALTER {column} TYPE {declared} USING {column}::{declared}")
_EVENTS = {"2": "UPDATE", "3": "INSERT", "4": "DELETE"}
_INSERTS = frozenset({"INSERT"})
_RUN_BY = {"replace": frozenset({"INSERT", "DELETE"})}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A rule on statements of the kind `event`. `is_instead`: other statements run in place of them."""

    name: str
    event: str
    is_instead: bool


def _rules_of(found: Iterable[Sequence[str | bool]]) -> tuple[Rule, ...]:
    """Build the rules from their arrays in the result of `TABLE_SCHEMA`."""
    return tuple(Rule(name=str(name), event=_EVENTS[str(event)], is_instead=bool(instead)) for name, event, instead in found)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSchema:
    """An existing table as the catalog describes it. `uniques`: the sets of columns that identify a row.

    `rules` rewrite an INSERT, but not a COPY. `has_members`: it has partitions, or others inherit from it. `weak_members`: those,
    at any depth, that do not keep rows as a logged table does.
    """

    oid: int
    kind: str
    logged: bool
    rules: tuple[Rule, ...]
    columns: tuple[TableColumn, ...]
    uniques: tuple[frozenset[str], ...]
    has_members: bool
    weak_members: tuple[Member, ...]

    @property
    def is_partitioned(self) -> bool:
        return self.kind == "partitioned table"

    @property
    def required(self) -> frozenset[str]:
        """The columns that are NOT NULL."""
        return frozenset(column.name for column in self.columns if column.not_null)

    def declared(self, names: Sequence[str]) -> list[str]:
        """Return the types of the named columns."""
        by_name = {column.name: column.declared for column in self.columns}
        return [by_name[name] for name in names]


def table_schema_of(connection: Connection, schema: str, table: str) -> TableSchema | None:
    """Read the table's schema, None if there is no such table."""
    found = connection.execute(_schema_query(schema, table)).fetchone()
    return None if found is None else _schema_from(found)


def hold(connection: Connection, schema: "pa.Schema", target: Target) -> TableSchema:
    """Lock the table's definition until the transaction ends, and read its schema, in one round trip."""
    statements = statements_of(schema, target)
    query = _schema_query(statements.schema, statements.table).as_string(connection)
    cursor = connection.execute(f"{statements.lock()}; {query}")
    cursor.nextset()
    found = cursor.fetchone()
    assert found is not None, "it is locked"
    return _schema_from(found)


def _schema_query(schema: str, table: str) -> Composed:
    oid = SQL("c.oid")
    uniques, members = UNIQUES.format(oid=oid), sql.MEMBERS.format(oid=oid)
    return sql.TABLE_SCHEMA.format(uniques=uniques, members=members, schema=Literal(schema), table=Literal(table))


def _schema_from(found: Sequence[Any]) -> TableSchema:
    oid, kind, persistence, rules, rows, uniques, has_members, weak_members = found
    columns = tuple(
        TableColumn(name=name, declared=declared, not_null=not_null, generated=generated, fills_itself=generated or has_default)
        for name, declared, not_null, generated, has_default in rows
    )
    return TableSchema(
        oid=oid,
        kind=kind_named(kind),
        logged=persistence == "p",
        rules=_rules_of(rules),
        columns=columns,
        uniques=tuple(map(frozenset, uniques)),
        has_members=has_members,
        weak_members=tuple(map(member_of, weak_members)),
    )


# --- checks of rows and settings


def require_storable(schema: "pa.Schema", target: Target) -> None:
    """Raise Usage for a table name, a column or a key that no table can have."""
    if split_name(target.table)[1] in OWN_TABLES:
        raise Usage(f"Table {target.table!r} is Penstock's own.", remedy="Choose another name for `table:`.")
    for name in schema.names:
        require_name(name)
    twice = sorted({name for name in schema.names if schema.names.count(name) > 1})
    if twice:
        raise Usage(f"The rows have column {twice[0]!r} twice.", remedy="Rename one of them in the transform.")
    require_keyed(schema, target.key, most=MAX_COLUMNS)


def statements_of(schema: "pa.Schema", target: Target) -> TableStatements:
    """Return the SQL about the target for rows of `schema`."""
    return TableStatements(*split_name(target.table), tuple(schema.names), target.key, STORAGES.read_as(schema))


def create_table(connection: Connection, schema: "pa.Schema", target: Target) -> None:
    """Create the table."""
    connection.execute(statements_of(schema, target).create(STORAGES.declared(schema)))


def require_fit(_: Connection, table_schema: TableSchema, schema: "pa.Schema", target: Target, *, decided: bool = False) -> None:
    """Raise Refused unless the table takes rows of `schema` and gives the same back. `decided`: see `Columns`."""
    table = target.table
    require_lasting(table_schema, table)
    if target.merge is not None:  # its SQL is rehearsed instead
        return
    _require_no_rewriting_rules(table_schema.rules, target)
    if target.write in BY_KEY:
        _require_one_index(table_schema, table)
    of = _columns(target, decided=decided)
    require_columns(table_schema.columns, schema, of=of, storage_of=storage_of, folded=str)
    if target.key and frozenset(target.key) not in table_schema.uniques:
        remedy = "CREATE UNIQUE INDEX ON {table} ({columns}), neither partial nor deferrable."
        raise of.no_unique_index(target.key, remedy=remedy)


def lengths(table_schema: TableSchema, schema: "pa.Schema", target: Target) -> Lengths:
    """Return the limits of text columns, because PostgreSQL cuts excess trailing blanks off without an error."""
    declared = dict(zip(schema.names, table_schema.declared(schema.names), strict=True))
    most = lengths_of(schema, lambda name: longest_text(declared[name]))
    return Lengths(of=_columns(target, decided=True), most=most, measure=pc.utf8_length, unit="characters", declared="text")


def _columns(target: Target, *, decided: bool) -> Columns:
    return Columns(table=target.table, named=quoted_table(target.table), alter=_ALTER, decided=decided)


def require_lasting(table_schema: TableSchema, table: str) -> None:
    """Raise Refused unless it is a table that keeps its rows, in itself and in its members."""
    if table_schema.kind not in {"table", "partitioned table"}:
        raise not_a_table(table, f"a {table_schema.kind}")
    if not (table_schema.logged or table_schema.is_partitioned):  # a partitioned table holds no row itself
        raise unlogged(f"Table {table!r}", quoted_table(table))
    require_lasting_members(table_schema.weak_members, table)


def _require_no_rewriting_rules(rules: Iterable[Rule], target: Target) -> None:
    """Raise Refused for a rule that runs something else in place of our INSERT or DELETE, or that rules out an INSERT by key.

    PostgreSQL counts such rows as if they had been written or deleted.
    """
    for rule in rules:
        if target.write in BY_KEY and rule.event != "DELETE":
            raise _rule_refused(rule, target, "with which PostgreSQL takes no INSERT by key")
        if rule.is_instead and rule.event in _RUN_BY.get(target.write, _INSERTS):
            raise _rule_refused(rule, target, f"which does something else in place of each {rule.event}")


def _rule_refused(rule: Rule, target: Target, why: str) -> Refused:
    return Refused(
        f"Table {target.table!r} has the rule {rule.name!r}, {why}.",
        remedy=f"DROP RULE {in_double_quotes(rule.name)} ON {quoted_table(target.table)}, or use a trigger.",
    )


def _require_one_index(table_schema: TableSchema, table: str) -> None:
    if table_schema.is_partitioned:
        raise Refused(
            f"Table {table!r} is partitioned, where PostgreSQL does not tell which rows an upsert replaced.",
            remedy="Use `write: append` or `replace`, or a table that is not partitioned.",
        )
    if table_schema.has_members:
        raise Refused(
            f"Table {table!r} is inherited by others, whose keys its unique index does not cover.",
            remedy=f"ALTER TABLE … NO INHERIT {quoted_table(table)} for each of them, or use `write: append` or `replace`.",
        )


def require_allowed(connection: Connection, table_schema: TableSchema, schema: "pa.Schema", target: Target) -> None:
    """Raise Refused if the role lacks a privilege that publishing needs, or if a partition takes less than the table itself."""
    row = connection.execute(sql.PRIVILEGES, (split_name(target.table)[0],)).fetchone()
    assert row is not None
    temporary, _, role = row
    if not temporary:
        raise Refused(
            f"Role {role!r} may not create temporary tables, in which rows are staged.",
            remedy="GRANT TEMPORARY ON DATABASE to it.",
        )
    for privilege in PRIVILEGES[target.write]:
        granted = connection.execute(sql.PRIVILEGES_WITH_TABLE, (table_schema.oid, privilege)).fetchone()
        if granted is not None and not granted[0]:
            raise Refused(
                f"Role {role!r} lacks {privilege} on table {target.table!r}.",
                remedy=f"GRANT {privilege} ON {quoted_table(target.table)} to it.",
            )
    _require_all_rows(connection, table_schema, target.table, role)
    if table_schema.is_partitioned and target.merge is None:  # the user's own SQL is rehearsed instead
        left = frozenset(column.name for column in table_schema.columns if column.fills_itself) - frozenset(schema.names)
        needed = frozenset(column.name for column in table_schema.columns) - left
        require_fitting_members(connection, table_schema.oid, target.table, needed=needed, sent=frozenset(schema.names))


def _require_all_rows(connection: Connection, table_schema: TableSchema, table: str, role: str) -> None:
    row = connection.execute(sql.HAS_ROW_SECURITY, (table_schema.oid,)).fetchone()
    if row is not None and row[0]:
        raise Refused(
            f"Row security of table {table!r} applies to role {role!r}, which hides rows from it and takes no COPY.",
            remedy=f"ALTER ROLE {in_double_quotes(role)} BYPASSRLS, or "
            f"ALTER TABLE {quoted_table(table)} DISABLE ROW LEVEL SECURITY.",
        )


def row_validator(_: Connection, table_schema: TableSchema, sink: SinkName, target: Target) -> RowValidator:
    """Return the check of rows for an existing table."""
    columns = table_schema.columns if target.merge is None else ()  # the staging table takes all rows of a merge
    declared = {column.name: column.declared for column in columns}
    return RowValidator(
        sink=sink,
        table=target.table,
        required=frozenset() if target.merge is not None else table_schema.required | frozenset(target.key),
        longest=sizes_of(declared, longest_text),
        jsonb=frozenset(name for name, kind in declared.items() if kind == "jsonb"),
    )
