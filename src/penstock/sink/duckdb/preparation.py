"""Preparation of a DuckDB table: it is created or checked, and its marker created, in one transaction."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import duckdb
import pyarrow as pa

from penstock.core.model import PipelineName, SinkName, Totals
from penstock.errors import Refused, Usage
from penstock.sink.duckdb import statements as sql
from penstock.sink.duckdb.load import load, scan
from penstock.sink.duckdb.marker_store import DuckdbMarkerStore
from penstock.sink.duckdb.row_validator import RowValidator
from penstock.sink.duckdb.statements import TableStatements
from penstock.sink.duckdb.storage import stored_schema
from penstock.sink.table.columns import Alter, Columns
from penstock.sink.table.content import totals_of
from penstock.sink.table.marker import LEDGER_ID
from penstock.sink.table.preparation import prepare_marker, require_not_lost, settings_of
from penstock.sink.table.target import BY_KEY, Target, no_table, not_a_table, require_key_in
from penstock.spark.schema import arrow_schema

_ALTER = Alter()


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


def prepare_table(
    connection: "duckdb.DuckDBPyConnection", *, pipeline: PipelineName, sink: SinkName, schema: str, target: Target, create: bool
) -> RowValidator:
    """Prepare the table for rows of Spark's `schema`, and its marker; return the check for the tasks. Raise Usage, Refused."""
    rows = arrow_schema(schema)
    with settings_of(sink):
        declared = require_storable(connection, rows, target)
    for statement in sql.CREATE_OWN:
        connection.execute(statement)
    markers, table_schema = DuckdbMarkerStore(connection), table_schema_of(connection, target.table)
    require_not_lost(markers.read(pipeline, sink), target, exists=table_schema is not None)
    table_schema = table_schema or _created(connection, rows, target, declared, create=create)
    require_fit(table_schema, rows, target, declared)
    require_exact_key(connection, rows, target)
    _rehearse(connection, rows, target)
    content = partial(content_of, connection, rows, target)
    prepare_marker(markers, pipeline=pipeline, sink=sink, schema=schema, target=target, content=content)
    required = table_schema.required | {name.lower() for name in target.key}
    return RowValidator(sink=sink, table=target.table, required=required)


def name_markers(connection: "duckdb.DuckDBPyConnection") -> None:
    """Add the column `ledger_id` to the marker table if an older Penstock created it."""
    table_schema = table_schema_of(connection, sql.MARKER_TABLE)
    if table_schema is not None and LEDGER_ID not in table_schema.columns:
        connection.execute(sql.ADD_LEDGER_ID)


def readable_marker_store(connection: "duckdb.DuckDBPyConnection") -> DuckdbMarkerStore | None:
    """Return the markers, also those of an older Penstock, or None if there are none yet."""
    table_schema = table_schema_of(connection, sql.MARKER_TABLE)
    return None if table_schema is None else DuckdbMarkerStore(connection, named=LEDGER_ID in table_schema.columns)


def require_schema_accepted(
    connection: "duckdb.DuckDBPyConnection", *, pipeline: PipelineName, sink: SinkName, schema: str, target: Target, create: bool
) -> None:
    """Raise what `prepare_table` would raise, as far as the catalog shows it, without changing anything."""
    rows, table_schema = arrow_schema(schema), table_schema_of(connection, target.table)
    with settings_of(sink):
        declared = require_storable(connection, rows, target)
    markers = readable_marker_store(connection)
    if markers is not None:
        require_not_lost(markers.read(pipeline, sink), target, exists=table_schema is not None)
    if table_schema is not None:
        require_fit(table_schema, rows, target, declared)
        require_exact_key(connection, rows, target)
    elif not create:
        raise no_table(target.table)


def content_of(connection: "duckdb.DuckDBPyConnection", rows: "pa.Schema", target: Target) -> Totals:
    """Return the totals of all rows of the table. Raise NotStoredError."""
    query = TableStatements(target.table, tuple(rows.names)).read
    return totals_of(scan(connection, query, rows), target.row_digest)


def require_storable(connection: "duckdb.DuckDBPyConnection", rows: "pa.Schema", target: Target) -> list[str]:
    """Return the column types for creating the table. Raise Usage for a name, a column or a key that no table can have."""
    if target.table.lower() in sql.OWN_TABLES:
        raise Usage(f"Table {target.table!r} is Penstock's own.", remedy="Choose another name for `table:`.")
    folded = [name.lower() for name in rows.names]
    twice = sorted({name for name in folded if folded.count(name) > 1})
    if twice:
        raise Usage(f"The rows have column {twice[0]!r} twice.", remedy="Rename one of them in the transform.")
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
    table_schema: TableSchema, rows: "pa.Schema", target: Target, declared: Sequence[str], *, decided: bool = False
) -> None:
    """Raise Refused unless an existing table has the rows' columns with exactly their types. `decided`: see `Columns`."""
    if table_schema.kind != "table":
        raise not_a_table(target.table, f"a {table_schema.kind}")
    of = _columns(target, decided=decided)
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


def require_exact_key(
    connection: "duckdb.DuckDBPyConnection", rows: "pa.Schema", target: Target, *, decided: bool = False
) -> None:
    """Raise Refused for a key whose collation takes different texts for equal. `decided`: see `Columns`."""
    key, statements = {name.lower() for name in target.key}, TableStatements(target.table, tuple(rows.names))
    for field in rows:
        if field.name.lower() in key and pa.types.is_string(field.type):
            row = connection.execute(statements.folds(field.name)).fetchone()
            if row is not None and row[0]:
                raise Refused(
                    f"Column {field.name!r} of the key of table {target.table!r} has a collation that takes different texts for "
                    "equal.",
                    remedy=_columns(target, decided=decided).made_anew(field.name, "without COLLATE"),
                )


def require_told_apart(connection: "duckdb.DuckDBPyConnection", rows: "pa.Schema", target: Target) -> None:
    """Raise Refused if a decided batch is to be written by a key for which the table no longer has a unique index."""
    statements = TableStatements(target.table, tuple(rows.names), target.key)
    if target.write in BY_KEY and not _runs(connection, statements.tells_apart):
        columns = ", ".join(map(sql.quoted, target.key))
        raise Refused(
            f"Table {target.table!r} has no unique index on exactly ({columns}), so the rows of the decided batch cannot be told "
            "apart by this key.",
            remedy=f"CREATE UNIQUE INDEX … ON {sql.quoted(target.table)} ({columns}). Then run `penstock recover`, which "
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
    return Columns(table=target.table, named=sql.quoted(target.table), alter=_ALTER, decided=decided)


def _created(
    connection: "duckdb.DuckDBPyConnection", rows: "pa.Schema", target: Target, declared: list[str], *, create: bool
) -> TableSchema:
    if not create:
        raise no_table(target.table)
    with _refused(target):
        connection.execute(TableStatements(target.table, tuple(rows.names), target.key).create(declared))
    table_schema = table_schema_of(connection, target.table)
    assert table_schema is not None
    return table_schema


def _rehearse(connection: "duckdb.DuckDBPyConnection", rows: "pa.Schema", target: Target) -> None:
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
