"""The user's table in Cassandra: checks of settings and rows, its schema, and whether writes to it can be repeated safely."""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
from cassandra import InvalidRequest, Unauthorized

from penstock.core.model import SinkName
from penstock.errors import Refused, Usage
from penstock.sink.cassandra import statements as sql
from penstock.sink.cassandra.database import Connection
from penstock.sink.cassandra.errors import reason_of
from penstock.sink.cassandra.storage import MAX_ROW_BYTES, STORAGES, RowValidator
from penstock.sink.table.columns import Alter, CatalogTable, DeclaresColumn, TableColumn, as_code, require_keyed
from penstock.sink.table.dialect import Rows, UserTables
from penstock.sink.table.marker_store import BATCH_TABLE, MARKER_TABLE
from penstock.sink.table.sql_sink import has_ledger_id
from penstock.sink.table.target import Target, not_a_table
from penstock.sql.table_name import in_double_quotes

WRITES = ("append", "upsert")
MAX_COLUMNS = 60_000
_NAME = re.compile(r"\w{1,48}", re.ASCII)
_SAFE_COPIES = 3
_LEAST_GRACE_S = 3 * 3600
"""As long as nodes keep what another one missed, by default."""
_PLAIN_TYPES = frozenset({
    "ascii", "bigint", "blob", "boolean", "date", "decimal", "double", "duration", "float", "inet", "int", "smallint", "text",
    "time", "timestamp", "timeuuid", "tinyint", "uuid", "varchar", "varint",
})  # fmt: skip
_TTL_REMEDY = "ALTER TABLE {table} WITH default_time_to_live = 0, or use another table."


def target_of(*, table: str, write: str, key: tuple[str, ...], partition_by: tuple[str, ...], deletes: bool = False) -> Target:
    """Return the target. Raises Usage for settings that no table could satisfy."""
    if write not in WRITES:
        raise Usage(
            f"`write` is {write!r}, which Cassandra cannot do exactly; expected one of {', '.join(WRITES)}.",
            remedy="Use upsert: a row replaces the one with its key.",
        )
    if not key:
        raise Usage("Rows of Cassandra need a key.", remedy="Add `key: [columns that identify a row]`.")
    if partition_by and key[: len(partition_by)] != partition_by:
        raise Usage(
            f"`partition_by` is {', '.join(partition_by)}, expected the first columns of the key, {', '.join(key)}.",
            remedy="Write them first in `key`, in the same order.",
        )
    if not _NAME.fullmatch(table):
        raise Usage(f"`table` is {table!r}, expected 1 to 48 letters, digits and `_`.", remedy="Correct it.")
    if table in sql.OWN_TABLES:
        raise Usage(f"Table {table!r} is Penstock's own.", remedy="Choose another name for `table:`.")
    return Target(table=table, write=write, key=key, partition=partition_by or key[:1], case_counts=True, deletes=deletes)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSchema(CatalogTable):
    """A table or a view. `partition` and `clustering` are its primary key, `static` the columns of a whole partition.

    `counts`: it has counters. `lives_s`: seconds after which rows expire by default, 0 for never. `grace_s`: seconds after which
    nodes may forget what was deleted. `volatile_in`: the keyspace, if it writes no commit log.
    """

    partition: tuple[str, ...] = ()
    clustering: tuple[str, ...] = ()
    static: frozenset[str] = frozenset()
    counts: bool = False
    lives_s: int = 0
    grace_s: int = 0
    volatile_in: str | None = None


def table_schema_of(connection: Connection, table: str) -> TableSchema | None:
    """Return the table or view of that name, None if there is none."""
    where = (connection.keyspace, table)
    found = connection.execute(sql.TABLE, where)
    if not found:
        return TableSchema(kind="view", columns=()) if connection.execute(sql.VIEW, where) else None
    columns = connection.execute(sql.COLUMNS, where)
    in_order = sorted(columns, key=lambda column: column[2])  # the place in the key
    parts = {
        kind: tuple(name for name, its_kind, _, _ in in_order if its_kind == kind)
        for kind in ("partition_key", "clustering", "static")
    }
    key = parts["partition_key"] + parts["clustering"]
    [(lives_s, grace_s, flags)] = found
    [(durable,)] = connection.execute(sql.DURABLE, (connection.keyspace,))
    return TableSchema(
        kind="table",
        columns=tuple(_column(name, declared, in_key=name in key) for name, _, _, declared in columns),
        partition=parts["partition_key"],
        clustering=parts["clustering"],
        static=frozenset(parts["static"]),
        counts="counter" in (flags or ()) or any(declared == "counter" for *_, declared in columns),
        lives_s=lives_s or 0,
        grace_s=grace_s or 0,
        volatile_in=None if durable else connection.keyspace,
    )


def dropped_us(connection: Connection, target: Target, columns: Sequence[str]) -> int:
    """Return when the last one of these columns was dropped, in microseconds, 0 if none was.

    One that was added again hides all values whose time stamp is not above that.
    """
    dropped = connection.execute(sql.DROPPED, (connection.keyspace, target.table))
    return max((at_ms * 1000 + 999 for name, at_ms in dropped if name in columns), default=0)


def few_copies(connection: Connection) -> str | None:
    """Return a warning where acknowledged rows may not survive the loss of a node, None where a quorum does."""
    [(replication,)] = connection.execute(sql.REPLICATION, (connection.keyspace,))
    copies = {name: value for name, value in dict(replication).items() if name != "class"}
    if all(int(value.partition("/")[0]) >= _SAFE_COPIES for value in copies.values()):
        return None
    found = ", ".join(f"{name} {value}" for name, value in copies.items())
    return (
        f"keyspace {connection.keyspace} keeps {found} copies: a node that dies takes with it what it acknowledged last. "
        f"Keep {_SAFE_COPIES}, or set commitlog_sync to batch or group on every node"
    )


def _column(name: str, declared: str, *, in_key: bool) -> TableColumn:
    return TableColumn(name=name, declared=declared, not_null=in_key, generated=False, fills_itself=not in_key)


def misfit(found: TableSchema, table: str) -> Refused | None:
    """Return why rows cannot be written exactly once into such a table, whatever they are; None if they can."""
    if found.kind == "view":
        return not_a_table(table, "a view")
    if found.volatile_in is not None:
        return Refused(
            f"Keyspace {found.volatile_in} has durable_writes = false: what it acknowledged is in the memory of its nodes alone, "
            "and a power cut takes rows and marker.",
            remedy=f"ALTER KEYSPACE {found.volatile_in} WITH durable_writes = true; then `nodetool flush {found.volatile_in}`.",
        )
    if found.counts:
        return Refused(
            f"Table {table!r} has counters, which a repeated write would raise again.",
            remedy="Sum up in the transform, and write the sum into a table of plain columns.",
        )
    if found.lives_s:
        return Refused(
            f"Table {table!r} has a default_time_to_live of {found.lives_s} s: a repeated write would have its rows live longer, "
            "and nothing could be proved once they are gone.",
            remedy=_TTL_REMEDY.format(table=in_double_quotes(table)),
        )
    return None


def _require_grace(found: TableSchema, target: Target) -> None:
    """Raise Refused if rows are to be deleted, and nodes forget that while writes from before may still come in."""
    if target.deletes and found.grace_s < _LEAST_GRACE_S:
        raise Refused(
            f"Table {target.table!r} has gc_grace_seconds = {found.grace_s}: after that, nodes may forget that a row was "
            "deleted, and a late write, or a node that was away, brings it back.",
            remedy=f"ALTER TABLE {in_double_quotes(target.table)} WITH gc_grace_seconds = 864000, and repair it more often.",
        )


def dated_columns(found: TableSchema, rows: "pa.Schema", target: Target) -> Sequence[str]:
    """Return the columns by which a displaced row has an age: those that an upsert writes, all of the table where rows delete.

    A column that no collection can be has one time stamp; a collection has none, or one for each element.
    """
    if target.deletes:
        mine = {*target.key, *found.static}
        return [column.name for column in found.columns if column.name not in mine and _has_one_age(column.declared)]
    # The column of a void may be a collection.
    return [field.name for field in rows if field.name not in target.key and not pa.types.is_null(field.type)]


def _has_one_age(declared: str) -> bool:
    return declared in _PLAIN_TYPES or declared.startswith(("frozen<", "vector<"))


def _require_whole_key(found: TableSchema, target: Target, *, decided: bool) -> None:
    """Raise Refused unless `key` is the table's whole primary key: a part of it would overwrite or hide rows of others.

    Rows of a decided batch are found by the key that it was decided with, whatever columns the sink has as partition key now.
    """
    there = found.partition + found.clustering
    if there == target.key and (decided or found.partition == target.partition):
        return
    message = f"Table {target.table!r} has the primary key {_key(found.partition, found.clustering)}, but "
    if decided:
        raise Refused(
            f"{message}the decided batch has the key {', '.join(target.key)}.",
            remedy=f"{_key_back(there, target)}. Then run `penstock recover`, which publishes the batch, and start again.",
        )
    raise Refused(
        f"{message}the sink has {_key(target.partition, target.key[len(target.partition) :])}.",
        remedy="If a column of it was renamed in the table, rename it back. Else write "
        f"key: [{', '.join(there)}] and partition_by: [{', '.join(found.partition)}].",
    )


def _key_back(there: tuple[str, ...], target: Target) -> str:
    """Return what gives the table the key of a decided batch again: columns that were renamed take their names back."""
    renamed = [(now, before) for now, before in zip(there, target.key, strict=False) if now != before]
    if len(there) != len(target.key) or {now for now, _ in renamed} & set(target.key):
        return f"Make the table anew with the primary key ({', '.join(target.key)}), and copy the rows"
    columns = " AND ".join(f"{in_double_quotes(now)} TO {in_double_quotes(before)}" for now, before in renamed)
    return f"Run {as_code(f'ALTER TABLE {in_double_quotes(target.table)} RENAME {columns}')}"


def _key(partition: tuple[str, ...], clustering: tuple[str, ...]) -> str:
    return f"({', '.join(('(' + ', '.join(partition) + ')', *clustering))})"


class Tables(UserTables[Connection, TableSchema]):
    """The user's tables in a keyspace, which is the URL's."""

    case_counts = True
    alter = Alter(retype=None)

    @staticmethod
    def split_name(name: str) -> tuple[str, str]:
        return "", name

    @staticmethod
    def table_schema_of(connection: Connection, _: str, table: str) -> TableSchema | None:
        return table_schema_of(connection, table)

    def named(self, target: Target) -> str:
        return in_double_quotes(target.table)

    def storage_of(self, _: Connection, __: "pa.Schema") -> Callable[["pa.DataType"], DeclaresColumn]:
        return STORAGES.of

    def require_storable(self, rows: "pa.Schema", target: Target) -> None:
        if not all(rows.names):
            raise Usage("The rows have a column without a name.", remedy="Name it in the transform.")
        require_keyed(rows, target.key, most=MAX_COLUMNS)
        for name in target.key:
            kind = rows.field(name).type
            if pa.types.is_floating(kind) or pa.types.is_null(kind):
                raise Usage(f"The key's column {name!r} is {kind}, which identifies nothing.", remedy="Use other columns as key.")

    def create_table(self, connection: Connection, rows: "pa.Schema", target: Target) -> None:
        _create(connection, sql.statements_of(rows, target).create(STORAGES.declared(rows), target.partition))

    def require_fit(
        self, connection: Connection, table_schema: TableSchema, rows: "pa.Schema", target: Target, *, decided: bool = False
    ) -> None:
        refusal = misfit(table_schema, target.table)
        if refusal is not None:
            raise refusal
        _require_grace(table_schema, target)
        _require_whole_key(table_schema, target, decided=decided)
        static = sorted(table_schema.static.intersection(rows.names))
        if static:
            raise Refused(
                f"Column {static[0]!r} of table {target.table!r} is static: it belongs to a whole partition, not to a row.",
                remedy="Leave it out in the transform.",
            )
        self.require_columns(connection, table_schema, rows, target, decided=decided)

    def require_allowed(self, connection: Connection, _: TableSchema, rows: "pa.Schema", target: Target) -> None:
        """Raise Refused where the user lacks a right. A row without a key tests writing: the right is checked before the row."""
        statements = sql.statements_of(rows, target)
        with _granted("SELECT", target.table):
            connection.execute(statements.look)
        with _granted("MODIFY", target.table):
            try:
                connection.define(statements.insert_keyless)
            except InvalidRequest:
                return
        raise AssertionError("a row without a key was written")

    def row_check(self, _: Connection, __: TableSchema, sink: SinkName, target: Target) -> RowValidator:
        """Return the check of rows in the tasks; it depends on the key only, not on the table."""
        return RowValidator(
            sink=sink,
            table=target.table,
            required=frozenset(target.key),
            max_row_bytes=MAX_ROW_BYTES,
            key=target.key,
            lone=target.partition[0] if len(target.partition) == 1 else None,
        )

    def read(self, connection: Connection, rows: "pa.Schema", target: Target) -> Rows:
        return STORAGES.batches(filter(None, connection.scan(sql.statements_of(rows, target).read)), rows)


TABLES = Tables()


# --- creating tables, and checking the user's rights


def create_own_tables(connection: Connection) -> None:
    """Create Penstock's own tables where they are missing. Raise Refused.

    Each statement takes effect by itself. A run that ends in between leaves an empty table, or no marker, to the next run.
    """
    for table, statement in ((MARKER_TABLE, sql.CREATE_MARKER), (BATCH_TABLE, sql.CREATE_BATCH)):
        if table_schema_of(connection, table) is None:
            _create(connection, statement)


def add_ledger_id(connection: Connection) -> None:
    """Add the column that the markers of an older Penstock lack, unless another driver does so at the same time."""
    if _has_ledger_id(connection):
        return
    try:
        with _granted("ALTER", MARKER_TABLE):
            connection.define(sql.ADD_LEDGER_ID)
    except InvalidRequest:
        if not _has_ledger_id(connection):
            raise


def _has_ledger_id(connection: Connection) -> bool:
    table_schema = table_schema_of(connection, MARKER_TABLE)
    return table_schema is None or has_ledger_id(table_schema)


@contextmanager
def _granted(right: str, table: str) -> Iterator[None]:
    try:
        yield
    except Unauthorized as cause:
        raise Refused(
            f"The user lacks {right} on {table}: {reason_of(cause)}.", remedy=f"GRANT {right} ON {table} to it."
        ) from cause


def _create(connection: Connection, statement: str) -> None:
    with _granted("CREATE", f"KEYSPACE {connection.keyspace}"):
        connection.define(statement)
