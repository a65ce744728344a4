"""The user's table as Cassandra's catalog shows it, and whether repeated writes into it leave what one write does."""

from dataclasses import dataclass

import pyarrow as pa

from penstock.errors import Refused
from penstock.sink.cassandra import statements as sql
from penstock.sink.cassandra.database import Connection
from penstock.sink.cassandra.storage import storage_of
from penstock.sink.cassandra.target import CassandraTarget
from penstock.sink.table.columns import Alter, Columns, TableColumn, require_columns
from penstock.sink.table.marker import LEDGER_ID
from penstock.sink.table.target import not_a_table
from penstock.sql.table_name import in_double_quotes

_SAFE_COPIES = 3
_ALTER = Alter(retype=None)
_TTL_REMEDY = "ALTER TABLE {table} WITH default_time_to_live = 0, or use another table."


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSchema:
    """A table or a view. `partition` and `clustering` are its primary key, `static` the columns of a whole partition."""

    is_view: bool
    columns: tuple[TableColumn, ...] = ()
    partition: tuple[str, ...] = ()
    clustering: tuple[str, ...] = ()
    static: frozenset[str] = frozenset()
    counts: bool = False
    lives_s: int = 0
    volatile_in: str | None = None
    """The keyspace, if it writes no commit log."""

    @property
    def is_named(self) -> bool:
        """Whether this table of markers has the column `ledger_id`, which an older Penstock did not create."""
        return any(column.name == LEDGER_ID for column in self.columns)


def table_schema_of(connection: Connection, table: str) -> TableSchema | None:
    """Return the table or view of that name, None if there is none."""
    where = (connection.keyspace, table)
    found = connection.execute(sql.TABLE, where)
    if not found:
        return TableSchema(is_view=True) if connection.execute(sql.VIEW, where) else None
    columns = connection.execute(sql.COLUMNS, where)
    in_order = sorted(columns, key=lambda column: column[2])  # the place in the key
    parts = {
        kind: tuple(name for name, its_kind, _, _ in in_order if its_kind == kind)
        for kind in ("partition_key", "clustering", "static")
    }
    key = parts["partition_key"] + parts["clustering"]
    [(lives_s, flags)] = found
    [(durable,)] = connection.execute(sql.DURABLE, (connection.keyspace,))
    return TableSchema(
        is_view=False,
        columns=tuple(_column(name, declared, in_key=name in key) for name, _, _, declared in columns),
        partition=parts["partition_key"],
        clustering=parts["clustering"],
        static=frozenset(parts["static"]),
        counts="counter" in (flags or ()) or any(declared == "counter" for *_, declared in columns),
        lives_s=lives_s or 0,
        volatile_in=None if durable else connection.keyspace,
    )


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
    if found.is_view:
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


def require_fit(found: TableSchema, rows: "pa.Schema", target: CassandraTarget, *, decided: bool = False) -> None:
    """Raise Refused unless the table accepts the rows, identifies them by the key, and returns the same rows.

    `decided`: as in `Columns`.
    """
    refusal = misfit(found, target.table)
    if refusal is not None:
        raise refusal
    _require_whole_key(found, target)
    static = sorted(found.static.intersection(rows.names))
    if static:
        raise Refused(
            f"Column {static[0]!r} of table {target.table!r} is static: it belongs to a whole partition, not to a row.",
            remedy="Leave it out in the transform.",
        )
    of = Columns(table=target.table, named=in_double_quotes(target.table), alter=_ALTER, decided=decided)
    require_columns(found.columns, rows, of=of, storage_of=storage_of, folded=str)


def _require_whole_key(found: TableSchema, target: CassandraTarget) -> None:
    """Raise Refused unless `key` is the table's whole primary key: a part of it would overwrite or hide rows of others."""
    if found.partition == target.partition and found.partition + found.clustering == target.key:
        return
    raise Refused(
        f"Table {target.table!r} has the primary key {_key(found.partition, found.clustering)}, but the sink has "
        f"{_key(target.partition, target.key[len(target.partition) :])}.",
        remedy=f"Write key: [{', '.join(found.partition + found.clustering)}] and partition_by: [{', '.join(found.partition)}].",
    )


def _key(partition: tuple[str, ...], clustering: tuple[str, ...]) -> str:
    return f"({', '.join(('(' + ', '.join(partition) + ')', *clustering))})"
