"""Schema of the user's table: read from the catalog, and checked to store every row without loss."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from psycopg.adapt import Buffer, Loader
from psycopg.pq import Format
from psycopg.sql import SQL, Composed, Literal

from penstock.core.model import SinkName
from penstock.errors import Refused
from penstock.sink.postgres import statements as sql
from penstock.sink.postgres.members import require_fitting_members
from penstock.sink.postgres.row_validator import RowValidator
from penstock.sink.postgres.statements import OWN_TABLES, TableStatements
from penstock.sink.postgres.storage import STORAGES, longest_text
from penstock.sink.table.columns import Alter, CatalogTable, Columns, TableColumn, as_code
from penstock.sink.table.dialect import Rows
from penstock.sink.table.served import ServedTables
from penstock.sink.table.target import BY_KEY, NotStoredError, Target, not_a_table
from penstock.sql.postgres.database import Connection
from penstock.sql.postgres.members import Member, kind_named, member_of, require_lasting_members, unlogged
from penstock.sql.postgres.names import quoted_table, require_name, split_name
from penstock.sql.postgres.statements import BLIND_UNIQUES, UNIQUES
from penstock.sql.table_name import in_double_quotes

_FETCHED_ROWS = 20_000
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
class TableSchema(CatalogTable):
    """An existing table as the catalog describes it. `uniques`: the sets of columns that identify a row.

    `blind_uniques`: columns of unique indexes that take different texts for equal, by the index's name in SQL. Columns have a
    `collation` only if it does the same, as nondeterministic ones do. `rules` rewrite an INSERT, but not a COPY. `has_members`:
    it has partitions, or others inherit from it. `weak_members`: those, at any depth, that do not keep rows as a logged table
    does.
    """

    oid: int
    logged: bool
    rules: tuple[Rule, ...]
    uniques: tuple[frozenset[str], ...]
    blind_uniques: Mapping[str, frozenset[str]]
    has_members: bool
    weak_members: tuple[Member, ...]

    @property
    def is_partitioned(self) -> bool:
        return self.kind == "partitioned table"

    def declared(self, names: Sequence[str]) -> list[str]:
        """Return the types of the named columns."""
        by_name = {column.name: column.declared for column in self.columns}
        return [by_name[name] for name in names]


def table_schema_of(connection: Connection, schema: str, table: str) -> TableSchema | None:
    """Read the table's schema, None if there is no such table."""
    found = connection.execute(_schema_query(schema, table)).fetchone()
    return None if found is None else _schema_from(found)


def _schema_query(schema: str, table: str) -> Composed:
    oid = SQL("c.oid")
    return sql.TABLE_SCHEMA.format(
        uniques=UNIQUES.format(oid=oid),
        blind_uniques=BLIND_UNIQUES.format(oid=oid),
        weak_members=sql.WEAK_MEMBERS.format(oid=oid),
        schema=Literal(schema),
        table=Literal(table),
    )


def _schema_from(found: Sequence[Any]) -> TableSchema:
    oid, kind, persistence, rules, rows, uniques, blind_uniques, has_members, weak_members = found
    return TableSchema(
        oid=oid,
        kind=kind_named(kind),
        logged=persistence == "p",
        rules=_rules_of(rules),
        columns=tuple(map(_column_of, rows)),
        uniques=tuple(map(frozenset, uniques)),
        blind_uniques={index: frozenset(names) for index, names in blind_uniques},
        has_members=has_members,
        weak_members=tuple(map(member_of, weak_members)),
    )


def _column_of(found: Sequence[Any]) -> TableColumn:
    name, declared, not_null, generated, has_default, collation = found
    return TableColumn(
        name=name,
        declared=declared,
        collation=collation,
        not_null=not_null,
        generated=generated,
        fills_itself=generated or has_default,
    )


class Tables(ServedTables[Connection, TableSchema, TableStatements]):
    """The user's tables in PostgreSQL."""

    database, case_counts = None, True
    own_tables = OWN_TABLES
    most_columns = 1599
    alter = Alter(retype="ALTER TABLE {table} ALTER {column} TYPE {declared} USING {column}::{declared}")
    statements = TableStatements
    storages = STORAGES
    text_order = '{}::text COLLATE "C"'
    unit = "characters"
    split_name, require_name, fold = staticmethod(split_name), staticmethod(require_name), staticmethod(str)
    length_of, measure = staticmethod(longest_text), staticmethod(pc.utf8_length)
    folded_name, table_schema_of = staticmethod(split_name), staticmethod(table_schema_of)

    def hold(self, connection: Connection, rows: "pa.Schema", target: Target) -> TableSchema:
        """Lock the table's definition until the transaction ends, and read its schema, in one round trip."""
        statements = self.statements_of(rows, target)
        query = _schema_query(statements.schema, statements.table).as_string(connection)
        cursor = connection.execute(f"{statements.hold()}; {query}")
        cursor.nextset()
        found = cursor.fetchone()
        assert found is not None, "it is locked"
        return _schema_from(found)

    def scan(self, connection: Connection, query: str, rows: "pa.Schema") -> Rows:
        """Read through a server-side cursor in the open transaction."""
        with closing(connection.cursor("penstock_scan", binary=True)) as cursor:
            for name, loader in _LOADERS.items():
                cursor.adapters.register_loader(name, loader)
            cursor.execute(query)
            yield from STORAGES.batches(iter(lambda: cursor.fetchmany(_FETCHED_ROWS), []), rows)

    def require_fit(
        self, connection: Connection, table_schema: TableSchema, rows: "pa.Schema", target: Target, *, decided: bool = False
    ) -> None:
        table = target.table
        require_lasting(table_schema, table)
        if target.merge is not None:  # its SQL is rehearsed instead
            return
        _require_no_rewriting_rules(table_schema.rules, target)
        if target.write in BY_KEY:
            _require_one_index(table_schema, table)
        of = self.require_columns(connection, table_schema, rows, target, decided=decided)
        _require_exact_key(table_schema, target, of)
        if target.key and frozenset(target.key) not in table_schema.uniques:
            raise of.no_unique_index(target.key, which=", neither partial nor deferrable")

    def require_allowed(self, connection: Connection, table_schema: TableSchema, rows: "pa.Schema", target: Target) -> None:
        """Raise Refused if the role lacks a privilege or does not see all rows, or if a partition takes less than the table."""
        row = connection.execute(sql.PRIVILEGES, (split_name(target.table)[0],)).fetchone()
        assert row is not None
        temporary, _, role = row
        if not temporary:
            raise Refused(
                f"Role {role!r} may not create temporary tables, in which rows are staged.",
                remedy="GRANT TEMPORARY ON DATABASE to it.",
            )
        for privilege in target.privileges:
            granted = connection.execute(sql.PRIVILEGES_WITH_TABLE, (table_schema.oid, privilege)).fetchone()
            if granted is not None and not granted[0]:
                raise Refused(
                    f"Role {role!r} lacks {privilege} on table {target.table!r}.",
                    remedy=f"GRANT {privilege} ON {quoted_table(target.table)} to it.",
                )
        _require_all_rows(connection, table_schema, target.table, role)
        if table_schema.is_partitioned and target.merge is None:  # the user's own SQL is rehearsed instead
            left = frozenset(column.name for column in table_schema.columns if column.fills_itself) - frozenset(rows.names)
            needed = frozenset(column.name for column in table_schema.columns) - left
            require_fitting_members(connection, table_schema.oid, target.table, needed=needed, sent=frozenset(rows.names))

    def require_alterable(
        self, connection: Connection, table_schema: TableSchema, wider: Mapping[str, str], target: Target
    ) -> None:
        found = connection.execute(sql.DEPENDENTS, (table_schema.oid, list(wider))).fetchall() if wider else []
        if found:
            column, _ = found[0]
            dependents = ", ".join(str(dependent) for name, dependent in found if name == column)
            raise Refused(
                f"Column {column!r} of table {target.table!r} is too narrow for the rows, and PostgreSQL gives it no other "
                f"type while something depends on it: {dependents}.",
                remedy=f"Drop that, run {as_code(wider[column])}, create it again, and start again.",
            )

    def row_check(self, _: Connection, table_schema: TableSchema, sink: SinkName, target: Target) -> RowValidator:
        tried = target.merge is not None  # the staging table takes all rows of a merge
        checked = replace(table_schema, columns=()) if tried else table_schema
        return RowValidator(
            sink=sink,
            table=target.table,
            required=frozenset() if tried else table_schema.required | frozenset(target.filled),
            longest=checked.sizes(longest_text),
            jsonb=frozenset(column.name for column in checked.columns if column.declared == "jsonb"),
        )


TABLES = Tables()


def require_lasting(table_schema: TableSchema, table: str) -> None:
    """Raise Refused unless `table_schema` is a table that keeps its rows, in itself and in its members."""
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
        if rule.is_instead and rule.event in _RUN_BY.get("replace" if target.deletes else target.write, _INSERTS):
            raise _rule_refused(rule, target, f"which does something else in place of each {rule.event}")


def _rule_refused(rule: Rule, target: Target, why: str) -> Refused:
    return Refused(
        f"Table {target.table!r} has the rule {rule.name!r}, {why}.",
        remedy=f"DROP RULE {in_double_quotes(rule.name)} ON {quoted_table(target.table)}, or use a trigger.",
    )


def _require_exact_key(table_schema: TableSchema, target: Target, of: Columns) -> None:
    """Raise Refused for a key by whose column or index different texts are equal, as nondeterministic collations have it."""
    for name in target.key:
        column = table_schema.by_name[name]
        if column.collation is not None:
            change = f'ALTER TABLE {of.named} ALTER COLUMN {in_double_quotes(name)} TYPE {column.declared} COLLATE "default"'
            raise Refused(
                f"Column {name!r} of the key of table {target.table!r} has the collation {column.collation!r}, which takes "
                "different texts for equal, expected a deterministic one.",
                remedy=f"{change}.",
            )
    for index, names in table_schema.blind_uniques.items():
        if names == frozenset(target.key):
            raise Refused(
                f"The unique index {index} on the key of table {target.table!r} has a collation which takes different texts for "
                "equal, so rows of other keys would be taken for rows of the batch.",
                remedy=f"DROP INDEX {index}.",
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


def _require_all_rows(connection: Connection, table_schema: TableSchema, table: str, role: str) -> None:
    row = connection.execute(sql.HAS_ROW_SECURITY, (table_schema.oid,)).fetchone()
    if row is not None and row[0]:
        raise Refused(
            f"Row security of table {table!r} applies to role {role!r}, which hides rows from it and takes no COPY.",
            remedy=f"ALTER ROLE {in_double_quotes(role)} BYPASSRLS, or "
            f"ALTER TABLE {quoted_table(table)} DISABLE ROW LEVEL SECURITY.",
        )


# --- loaders of binary values, since Python's dates have a narrower range


class _Integer(Loader):
    """Loads a date as days, a time or timestamp as microseconds."""

    format = Format.BINARY

    def load(self, data: Buffer) -> int:
        return int.from_bytes(data, "big", signed=True)


class _Interval(Loader):
    """Loads an interval as microseconds. Days and months have no fixed length, and Spark's intervals have neither."""

    format = Format.BINARY

    def load(self, data: Buffer) -> int:
        if any(bytes(data[8:16])):
            raise NotStoredError("expected an interval of hours and less, found days or months in it")
        return int.from_bytes(data[:8], "big", signed=True)


_LOADERS: dict[str, type[Loader]] = {
    **dict.fromkeys(("date", "time", "timestamp", "timestamptz"), _Integer),
    "interval": _Interval,
}
