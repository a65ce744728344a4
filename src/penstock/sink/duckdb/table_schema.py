"""Schema of a DuckDB table: read from the catalog, and checked to store every row unchanged and under its key."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import duckdb
import pyarrow as pa

from penstock.errors import Refused, Usage
from penstock.sink.duckdb import statements as sql
from penstock.sink.duckdb.load import load
from penstock.sink.duckdb.statements import TableStatements
from penstock.sink.duckdb.storage import stored_schema
from penstock.sink.table.columns import Alter, Columns, require_distinct_names
from penstock.sink.table.marker import LEDGER_ID
from penstock.sink.table.target import BY_KEY, Target, not_a_table, require_key_in
from penstock.sql.table_name import in_double_quotes


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSchema:
    """An existing table or view in the catalog: its columns' declared types, and the `required` ones, which take no NULL.

    `empty`: the required columns that nothing fills if the rows lack them. `filled`: columns with a default, or generated.
    """

    kind: str
    columns: dict[str, str]
    required: frozenset[str]
    empty: frozenset[str]
    filled: frozenset[str]

    @property
    def is_named(self) -> bool:
        """Whether this table of markers has the column `ledger_id`, which an older Penstock did not create."""
        return LEDGER_ID in self.columns


def table_schema_of(connection: "duckdb.DuckDBPyConnection", table: str) -> TableSchema | None:
    """Return the table or view as the catalog declares it, None if there is none."""
    found = connection.execute(sql.TABLE_KIND, {"name": table}).fetchone()
    if found is None:
        return None
    columns = connection.execute(sql.TABLE_COLUMNS, {"name": table}).fetchall()
    return TableSchema(
        kind=found[0],
        columns={name: declared for name, declared, _, _ in columns},
        required=frozenset(name.lower() for name, _, required, _ in columns if required),
        empty=frozenset(name.lower() for name, _, required, filled in columns if required and not filled),
        filled=frozenset(name.lower() for name, _, _, filled in columns if filled),
    )


def declared_for(connection: "duckdb.DuckDBPyConnection", rows: "pa.Schema", target: Target) -> list[str]:
    """Return the column types for creating the table. Raise Usage for a name, a column or a key that no table can have."""
    if target.table.lower() in sql.OWN_TABLES:
        raise Usage(f"Table {target.table!r} is Penstock's own.", remedy="Choose another name for `table:`.")
    folded = [name.lower() for name in rows.names]
    require_distinct_names(folded, database="DuckDB")
    if not all(rows.names):
        raise Usage("The rows have a column without a name.", remedy="Name it in the transform.")
    require_key_in(rows, target.key, [*rows.names, *folded, *(name for name in target.key if name.lower() in folded)])
    return [_declared(connection, field) for field in stored_schema(rows)]


def _declared(connection: "duckdb.DuckDBPyConnection", field: "pa.Field") -> str:
    try:
        connection.register(sql.INCOMING, pa.table([pa.nulls(0, field.type)], names=["value"]))
        row = connection.execute(sql.DESCRIBE_INCOMING).fetchone()
    except duckdb.Error as cause:
        raise Usage(
            f"Column {field.name!r} has a type that DuckDB lacks: {cause}.", remedy="Cast it in the transform."
        ) from cause
    finally:
        connection.unregister(sql.INCOMING)
    assert row is not None
    return str(row[1])


def require_fit(
    connection: "duckdb.DuckDBPyConnection",
    table_schema: TableSchema,
    rows: "pa.Schema",
    target: Target,
    *,
    decided: bool = False,
) -> None:
    """Raise Refused unless an existing table has the rows' columns with exactly their types, and tells all keys apart.

    `decided`: see `Columns`.
    """
    if table_schema.kind != "table":
        raise not_a_table(target.table, f"a {table_schema.kind}")
    declared, of = declared_for(connection, rows, target), _columns(target, decided=decided)
    found = {name.lower(): name for name in table_schema.columns}
    ours = {name.lower() for name in rows.names}
    of.require_same(
        dict(zip(rows.names, declared, strict=True)),
        table_schema.columns,
        missing=[name for name in rows.names if name.lower() not in found],
        demanded=[name for name in table_schema.columns if name.lower() in table_schema.empty - ours],
    )
    for field, kind in zip(rows, declared, strict=True):
        column = found[field.name.lower()]
        if table_schema.columns[column] != kind:
            raise of.other_type(column, table_schema.columns[column], field.type, expected=kind, declared=kind)
    _require_exact_key(connection, rows, target, of)


def _require_exact_key(connection: "duckdb.DuckDBPyConnection", rows: "pa.Schema", target: Target, of: Columns) -> None:
    """Raise Refused for a key whose collation takes different texts for equal."""
    key, statements = {name.lower() for name in target.key}, TableStatements(target.table, tuple(rows.names))
    for field in rows:
        if field.name.lower() in key and pa.types.is_string(field.type):
            row = connection.execute(statements.folds(field.name)).fetchone()
            if row is not None and row[0]:
                raise Refused(
                    f"Column {field.name!r} of the key of table {target.table!r} has a collation that takes different texts for "
                    "equal.",
                    remedy=of.made_anew(field.name, "without COLLATE"),
                )


def require_told_apart(connection: "duckdb.DuckDBPyConnection", rows: "pa.Schema", target: Target) -> None:
    """Raise Refused if a decided batch is to be written by a key for which the table no longer has a unique index."""
    statements = TableStatements(target.table, tuple(rows.names), target.key)
    if target.write in BY_KEY and not _runs(connection, statements.tells_apart):
        columns = ", ".join(map(in_double_quotes, target.key))
        raise Refused(
            f"Table {target.table!r} has no unique index on exactly ({columns}), so the rows of the decided batch cannot be told "
            "apart by this key.",
            remedy=f"CREATE UNIQUE INDEX … ON {in_double_quotes(target.table)} ({columns}). Then run `penstock recover`, which "
            "publishes the batch, and start again.",
        )


def require_written(
    connection: "duckdb.DuckDBPyConnection", table_schema: TableSchema, rows: "pa.Schema", target: Target
) -> None:
    """Raise Refused for a column of the decided rows that the database generates; the catalog shows it as one with a default."""
    statements = TableStatements(target.table, tuple(rows.names))
    for name in rows.names:
        generated = name.lower() in table_schema.filled and not _runs(connection, statements.tries(name))
        _columns(target, decided=True).require_not_generated(name, generated=generated)


def _runs(connection: "duckdb.DuckDBPyConnection", statement: str) -> bool:
    try:
        connection.execute(statement)
    except duckdb.BinderException:
        return False
    return True


def _columns(target: Target, *, decided: bool) -> Columns:
    return Columns(table=target.table, named=in_double_quotes(target.table), alter=Alter(), decided=decided)


def create_table(connection: "duckdb.DuckDBPyConnection", rows: "pa.Schema", target: Target) -> None:
    """Create the table. Raise Refused."""
    declared = declared_for(connection, rows, target)
    with _refused(target):
        connection.execute(TableStatements(target.table, tuple(rows.names), target.key).create(declared))


def rehearse(connection: "duckdb.DuckDBPyConnection", rows: "pa.Schema", target: Target) -> None:
    """Run a publication's statements without rows: an unsuitable key, say, is reported before anything is decided."""
    tried = Target(table=target.table, write="append" if target.write == "replace" else target.write, key=target.key)
    with _refused(target):
        load(connection, iter(()), rows, tried)


@contextmanager
def _refused(target: Target) -> Iterator[None]:
    try:
        yield
    except (duckdb.BinderException, duckdb.InvalidTypeException, duckdb.CatalogException, duckdb.ParserException) as cause:
        raise Refused(
            f"Rows cannot be written into table {target.table!r}: {str(cause).partition(chr(10))[0]}.",
            remedy="Change the table, `write:` or `key:`; a key needs a primary key, a UNIQUE constraint or a unique index on "
            "exactly its columns.",
        ) from cause
