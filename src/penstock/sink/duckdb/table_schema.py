"""Schema of a DuckDB table: read from the catalog, and checked to store every row unchanged and under its key."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

import duckdb
import pyarrow as pa

from penstock.core.model import SinkName
from penstock.errors import Refused, Usage
from penstock.sink.duckdb import statements as sql
from penstock.sink.duckdb.load import load
from penstock.sink.duckdb.statements import statements_of
from penstock.sink.duckdb.storage import RowValidator, stored_schema
from penstock.sink.table.columns import Alter, Columns, TableColumn, missing_columns, require_columns, require_distinct_names
from penstock.sink.table.publication import Loaded
from penstock.sink.table.target import BY_KEY, Target, not_a_table, require_key_in
from penstock.sql.table_name import in_double_quotes


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSchema:
    """An existing table or view in the catalog, which shows generated columns as ones with a default."""

    kind: str
    columns: tuple[TableColumn, ...]


@dataclass(frozen=True, slots=True)
class Exactly:
    """A type that only columns of that very type store."""

    name: str
    also: str = ""

    def declared(self, _kind: "pa.DataType") -> str:
        return self.name

    def takes(self, declared: str, _kind: "pa.DataType") -> bool:
        return declared == self.name


def table_schema_of(connection: "duckdb.DuckDBPyConnection", table: str) -> TableSchema | None:
    """Return the table or view as the catalog declares it, None if there is none."""
    found = connection.execute(sql.TABLE_KIND, {"name": table}).fetchone()
    if found is None:
        return None
    columns = connection.execute(sql.TABLE_COLUMNS, {"name": table}).fetchall()
    return TableSchema(
        kind=found[0],
        columns=tuple(
            TableColumn(name=name, declared=declared, not_null=not_null, generated=False, fills_itself=filled)
            for name, declared, not_null, filled in columns
        ),
    )


def row_validator(_: "duckdb.DuckDBPyConnection", table_schema: TableSchema, sink: SinkName, target: Target) -> RowValidator:
    """Return the check of rows in the tasks."""
    required = {column.name.lower() for column in table_schema.columns if column.not_null}
    return RowValidator(sink=sink, table=target.table, required=frozenset(required.union(map(str.lower, target.key))))


def require_storable(rows: "pa.Schema", target: Target) -> None:
    """Raise Usage for a name, a column or a key that no table can have."""
    if target.table.lower() in sql.OWN_TABLES:
        raise Usage(f"Table {target.table!r} is Penstock's own.", remedy="Choose another name for `table:`.")
    folded = [name.lower() for name in rows.names]
    require_distinct_names(folded, database="DuckDB")
    if not all(rows.names):
        raise Usage("The rows have a column without a name.", remedy="Name it in the transform.")
    require_key_in(rows, target.key, [*rows.names, *folded, *(name for name in target.key if name.lower() in folded)])


def declared_for(connection: "duckdb.DuckDBPyConnection", rows: "pa.Schema") -> list[str]:
    """Return the column types for creating the table. Raise Usage for a type that DuckDB lacks."""
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
    of = _columns(target, decided=decided)
    require_columns(table_schema.columns, rows, of=of, storage_of=_storage_of(connection, rows), folded=str.lower)
    _require_exact_key(connection, rows, target, of)


def missing_in(
    connection: "duckdb.DuckDBPyConnection", table_schema: TableSchema, rows: "pa.Schema", target: Target
) -> Mapping[str, str]:
    """Return the columns of the rows that the table lacks, each with the statement that adds it."""
    of = _columns(target, decided=False)
    return missing_columns(table_schema.columns, rows, of=of, storage_of=_storage_of(connection, rows), folded=str.lower)


def _storage_of(connection: "duckdb.DuckDBPyConnection", rows: "pa.Schema") -> Callable[["pa.DataType"], Exactly]:
    declared = dict(zip(rows.types, declared_for(connection, rows), strict=True))
    return lambda kind: Exactly(declared[kind])


def _require_exact_key(connection: "duckdb.DuckDBPyConnection", rows: "pa.Schema", target: Target, of: Columns) -> None:
    """Raise Refused for a key whose collation takes different texts for equal."""
    key, statements = {name.lower() for name in target.key}, statements_of(rows, target)
    for field in rows:
        if field.name.lower() in key and pa.types.is_string(field.type):
            row = connection.execute(statements.folds(field.name)).fetchone()
            if row is not None and row[0]:
                raise Refused(
                    f"Column {field.name!r} of the key of table {target.table!r} has a collation that takes different texts for "
                    "equal.",
                    remedy=of.made_anew(field.name, "without COLLATE"),
                )


def write(
    connection: "duckdb.DuckDBPyConnection",
    batches: Iterator["pa.RecordBatch"],
    rows: "pa.Schema",
    table_schema: TableSchema,
    target: Target,
) -> Loaded:
    """Write decided rows. Raise Refused for a table that, by now, generates one of their columns or has no index for the key."""
    _require_told_apart(connection, rows, target)
    _require_written(connection, table_schema, rows, target)
    return load(connection, batches, rows, target)


def _require_told_apart(connection: "duckdb.DuckDBPyConnection", rows: "pa.Schema", target: Target) -> None:
    if target.write in BY_KEY and not _runs(connection, statements_of(rows, target).tells_apart):
        columns = ", ".join(map(in_double_quotes, target.key))
        raise Refused(
            f"Table {target.table!r} has no unique index on exactly ({columns}), so the rows of the decided batch cannot be told "
            "apart by this key.",
            remedy=f"CREATE UNIQUE INDEX … ON {in_double_quotes(target.table)} ({columns}). Then run `penstock recover`, which "
            "publishes the batch, and start again.",
        )


def _require_written(
    connection: "duckdb.DuckDBPyConnection", table_schema: TableSchema, rows: "pa.Schema", target: Target
) -> None:
    statements = statements_of(rows, target)
    filled = {column.name.lower() for column in table_schema.columns if column.fills_itself}
    for name in rows.names:
        generated = name.lower() in filled and not _runs(connection, statements.tries(name))
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
    declared = declared_for(connection, rows)
    with _refused(target):
        connection.execute(statements_of(rows, target).create(declared))


def dry_run(connection: "duckdb.DuckDBPyConnection", rows: "pa.Schema", target: Target) -> None:
    """Run a publication's statements without rows: an unsuitable key, say, is reported before anything is decided."""
    tried = replace(target, write="append" if target.write == "replace" else target.write)
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
