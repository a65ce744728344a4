"""Schema of the user's table: read from the catalog, and checked to store every row without loss."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pymysql

from penstock.core.deletes import without_deleting
from penstock.core.model import SinkName
from penstock.errors import Refused
from penstock.sink.mysql import statements as sql
from penstock.sink.mysql.row_validator import RowValidator
from penstock.sink.mysql.statements import TableStatements
from penstock.sink.mysql.storage import KEY_TYPES, STORAGES, most_bytes, most_characters
from penstock.sink.table.columns import Alter, CatalogTable, Lengths, TableColumn
from penstock.sink.table.served import ServedTables
from penstock.sink.table.target import Target, not_a_table
from penstock.sql.mysql.catalog import ENGINE, has_more_than_type, kind_of, uniques_of
from penstock.sql.mysql.connection import CHARSET, Connection
from penstock.sql.mysql.errors import DENIED, code_of, reason_of
from penstock.sql.mysql.server import Server
from penstock.sql.mysql.statements import SORTED_BYTES, quoted, require_name, require_table_name

_ALTER = Alter(
    nullable="ALTER TABLE {table} MODIFY {column} {declared} NULL",
    retype="ALTER TABLE {table} MODIFY {column} {declared}",
    quoted=quoted,
)
_PRIMARY = "PRIMARY"
_LONGEST_KEY = 768
"""In characters. An index takes 3072 bytes."""
_ALTER_KEY = replace(_ALTER, nullable=f"{_ALTER.nullable}, DROP PRIMARY KEY")
_WIDTH = re.compile(r"(?!tinyint\(1\))(tinyint|smallint|mediumint|int|bigint)\(\d+\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Column(TableColumn):
    """A `TableColumn` of MySQL; `declared` names the character set unless it is utf8mb4."""

    @property
    def takes_bytes_as_sent(self) -> bool:
        """Whether LOAD DATA may store bytes as they are sent: no character set but utf8mb4 is involved."""
        return "character set" not in self.declared


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSchema(CatalogTable):
    """An existing table as the catalog describes it.

    `uniques`: the columns of each index that identifies a row, by name; none for an index on prefixes or expressions.
    """

    engine: str
    columns: tuple[Column, ...]
    uniques: Mapping[str, frozenset[str]]

    fold = staticmethod(str.lower)

    def tells_apart_by(self, key: Sequence[str]) -> frozenset[str]:
        """Return the names of the unique indexes on exactly these columns."""
        wanted = frozenset(name.lower() for name in key)
        return frozenset(index for index, columns in self.uniques.items() if columns == wanted)

    def is_only_told_apart_by(self, key: Sequence[str]) -> bool:
        """Return whether no unique index is on anything but these columns."""
        return len(self.tells_apart_by(key)) == len(self.uniques)

    def is_filled_by(self, rows: "pa.Schema") -> bool:
        """Return whether `rows` have all columns but those that the server computes."""
        names = {name.lower() for name in rows.names}
        return all(column.generated or name in names for name, column in self.by_name.items())


def table_schema_of(connection: Connection, _: str, table: str) -> TableSchema | None:
    """Read the table's schema, None if there is no such table."""
    found = kind_of(connection, table)
    if found is None:
        return None
    return TableSchema(
        kind=found[0],
        engine=found[1],
        columns=tuple(_column(row) for row in connection.execute(sql.TABLE_COLUMNS, (table,)).fetchall()),
        uniques=uniques_of(connection, table),
    )


def _column(row: Sequence[Any]) -> Column:
    name, declared, charset, collation, nullable, default, extra = row
    generated = "GENERATED" in extra.upper().replace("DEFAULT_GENERATED", "")
    foreign = f" character set {charset}" if charset not in {None, CHARSET} else ""
    return Column(
        name=name,
        declared=_WIDTH.sub(r"\1", declared) + foreign,
        collation=collation,
        not_null=nullable == "NO",
        generated=generated,
        fills_itself=generated or default not in {None, "NULL"} or "auto_increment" in extra,
    )


class Tables(ServedTables[Connection, TableSchema, TableStatements]):
    """The user's tables in MySQL, in the database of the URL."""

    database, case_counts = "MySQL", True
    own_tables = sql.OWN_TABLES
    most_columns = 1016
    alter = _ALTER
    statements = TableStatements
    storages = STORAGES
    key_types = KEY_TYPES
    collated = ("varchar",)
    text_order = "CAST({} AS BINARY)"  # bytes of UTF-8 have the order of code points; two binary collations do not compare
    unit = "characters"
    require_name, fold = staticmethod(require_name), staticmethod(str.lower)
    length_of, measure = staticmethod(most_characters), staticmethod(pc.utf8_length)
    table_schema_of = staticmethod(table_schema_of)

    @staticmethod
    def split_name(name: str) -> tuple[str, str]:
        return "", require_table_name(name)

    def collate(self, connection: Connection) -> str:
        return f" COLLATE {connection.server.exact_collation}"

    def require_fit(
        self, connection: Connection, table_schema: TableSchema, rows: "pa.Schema", target: Target, *, decided: bool = False
    ) -> None:
        table = target.table
        if table_schema.kind != "table":
            raise not_a_table(table, f"a {table_schema.kind}")
        if table_schema.engine.lower() != ENGINE.lower():
            raise Refused(
                f"Table {table!r} is of the engine {table_schema.engine}, expected {ENGINE}, which alone commits it with its "
                "marker.",
                remedy=f"ALTER TABLE {quoted(table)} ENGINE = {ENGINE}.",
            )
        if target.merge is not None:  # its SQL is rehearsed instead
            return
        of = self.require_columns(connection, table_schema, rows, target, decided=decided)
        if not target.key:
            return
        _require_exact_key(table_schema, target, connection.server)
        if not table_schema.tells_apart_by(target.key):
            create = "ALTER TABLE {table} ADD UNIQUE ({columns})"
            raise of.no_unique_index(target.key, create=create, which=", of whole columns")

    def require_allowed(self, connection: Connection, _: TableSchema, rows: "pa.Schema", target: Target) -> None:
        tries = self.statements_of(rows, target).tries()
        for right in target.privileges:
            try:
                connection.execute(tries[right])
            except pymysql.err.Error as cause:
                if code_of(cause) not in DENIED:
                    raise
                lacking = f"{right} ON {target.table}"
                raise Refused(f"The user lacks {lacking}: {reason_of(cause)}.", remedy=f"GRANT {lacking} to it.") from cause

    def row_check(self, connection: Connection, table_schema: TableSchema, sink: SinkName, target: Target) -> RowValidator:
        filled = frozenset(name.lower() for name in target.filled)
        tried = target.merge is not None  # the staging table takes all rows of a merge
        checked = replace(table_schema, columns=()) if tried else table_schema
        return RowValidator(
            sink=sink,
            table=target.table,
            required=frozenset() if tried else table_schema.required | filled,
            characters=checked.sizes(most_characters),
            octets=_octets(checked, target),
            since_1970=frozenset(name for name, column in checked.by_name.items() if column.declared.startswith("timestamp")),
            max_value_bytes=connection.server.max_packet,
            max_insert_bytes=connection.server.max_insert_bytes,
        )

    def wider_columns(
        self, connection: Connection, table_schema: TableSchema, rows: "pa.Schema", filled: "pa.Schema", target: Target
    ) -> Mapping[str, str]:
        """Do as the base class. Raise Refused where a column has more than its type: MODIFY would drop that."""
        found = super().wider_columns(connection, table_schema, rows, filled, target)
        for name in found:
            if has_more_than_type(connection, target.table, name):
                column = table_schema.by_name[name.lower()]
                declared = self.storages.of(rows.field(name).type).declared(rows.field(name).type)
                raise self.columns(target, decided=False).not_plain(column.name, column.declared, declared=declared)
        return found


TABLES = Tables()


def _octets(table_schema: TableSchema, target: Target) -> Mapping[str, int]:
    """Return the most bytes that columns take. Of a text by which rows of a key are sorted the server compares no more."""
    sizes = table_schema.sizes(most_bytes)
    if target.sequence_by is None:
        return sizes
    name = target.sequence_by.lower()
    return {**sizes, name: min(SORTED_BYTES, sizes.get(name, SORTED_BYTES))}


def _require_exact_key(table_schema: TableSchema, target: Target, server: Server) -> None:
    for name in target.key:
        column = table_schema.by_name.get(name.lower())
        if column is not None and column.collation not in {None, server.exact_collation}:
            raise Refused(
                f"Column {name!r} of the key of table {target.table!r} has the collation {column.collation}, which takes "
                f"different texts for equal, expected {server.exact_collation}.",
                remedy=f"ALTER TABLE {quoted(target.table)} MODIFY {quoted(name)} … COLLATE {server.exact_collation}.",
            )


# --- checks of a decided batch against columns narrowed since the decision, where MySQL would change values silently
#
# In place of NULL, MySQL writes the next number of an AUTO_INCREMENT or the time of a timestamp, and warns of neither. It cuts
# excess trailing blanks off a text, with a note that a server, a user or MariaDB's note_verbosity can switch off.


def decided_rows(
    batches: Iterator["pa.RecordBatch"], table_schema: TableSchema, schema: "pa.Schema", target: Target, server: Server
) -> Iterator["pa.RecordBatch"]:
    """Return the batches. Iteration raises Refused at the first one with a value that its column cannot store unchanged.

    Nothing is checked for `write: merge`: only the user's own SQL says what becomes of the values.
    """
    if target.merge is not None:
        return batches
    for lengths in _lengths(table_schema, schema, target, server):
        batches = lengths.required(batches)
    return _without_nulls(batches, table_schema, target)


def _lengths(table_schema: TableSchema, rows: "pa.Schema", target: Target, server: Server) -> Iterator[Lengths]:
    lengths, in_key = TABLES.lengths(table_schema, rows, target), {name.lower() for name in target.key}
    for is_key, declared in ((True, f"varchar({_LONGEST_KEY}) COLLATE {server.exact_collation}"), (False, "longtext")):
        some = {name: length for name, length in lengths.most.items() if (name.lower() in in_key) == is_key}
        yield replace(lengths, most=some, declared=declared)


def _without_nulls(batches: Iterator["pa.RecordBatch"], table_schema: TableSchema, target: Target) -> Iterator["pa.RecordBatch"]:
    columns = table_schema.by_name
    for batch in batches:
        staying = without_deleting(batch) if target.deletes else batch
        for name, values in zip(staying.schema.names, staying.columns, strict=True):
            column = columns[name.lower()]
            if values.null_count and column.not_null:
                alter = _ALTER_KEY if name.lower() in table_schema.uniques.get(_PRIMARY, frozenset()) else _ALTER
                collate = f" COLLATE {column.collation}" if column.collation else ""
                of = replace(TABLES.columns(target, decided=True), alter=alter)
                raise of.takes_no_null(column.name, column.declared + collate)
        yield batch
