"""The user's table in Redshift: its schema in the catalog, and whether it takes the rows and returns them unchanged."""

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.model import SinkName
from penstock.errors import Refused, Usage
from penstock.sink.redshift import statements as sql
from penstock.sink.redshift.database import Connection
from penstock.sink.redshift.row_validator import MAX_ROW_BYTES, RowValidator
from penstock.sink.redshift.statements import TableStatements, folded, quoted, require_name, split_name
from penstock.sink.redshift.storage import MOST_SCALE, STORAGES, most_bytes, storage_of
from penstock.sink.table.columns import (
    Alter,
    Columns,
    Lengths,
    TableColumn,
    lengths_of,
    require_columns,
    require_distinct_names,
    require_exact_key,
    require_keyed,
    sizes_of,
)
from penstock.sink.table.storage import digits_of
from penstock.sink.table.target import PRIVILEGES, Target, not_a_table

MAX_COLUMNS = 1599
"""One less than Redshift's own limit: the staging table has one more."""
_KINDS = {"v": "view", "r": "table"}
_ALTER = Alter(nullable=None, retype=None, quoted=quoted)
_FILLED = ('"identity"', "identity(")


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSchema:
    """An existing table or view as the catalog declares it."""

    kind: str
    columns: tuple[TableColumn, ...]

    @property
    def required(self) -> frozenset[str]:
        """The columns that take no NULL."""
        return frozenset(column.name for column in self.columns if column.not_null)


def table_schema_of(connection: Connection, schema: str, table: str) -> TableSchema | None:
    """Return the table or view as the catalog declares it, None if there is none."""
    place = {"schema": schema, "table": table}
    found = connection.execute(sql.TABLE_KIND, place).fetchone()
    if found is None:
        return None
    columns = tuple(
        TableColumn(
            name=name,
            declared=declared,
            not_null=not_null,
            generated=default is not None and default.startswith(_FILLED),
            fills_itself=default is not None,
        )
        for name, declared, not_null, default in connection.execute(sql.TABLE_COLUMNS, place).fetchall()
    )
    return TableSchema(kind=_KINDS.get(found[0], f"relation of kind {found[0]}"), columns=columns)


# --- what the rows and the settings must be


def require_storable(schema: "pa.Schema", target: Target) -> None:
    """Raise Usage for a table name, a column or a key that no table can have."""
    if split_name(target.table)[1] in sql.OWN_TABLES:
        raise Usage(f"Table {target.table!r} is Penstock's own.", remedy="Choose another name for `table:`.")
    require_distinct_names([require_name(name) for name in schema.names], database="Redshift")
    require_keyed(schema, target.key, most=MAX_COLUMNS)
    require_exact_key(schema, target.key)
    for field in schema:
        if pa.types.is_decimal(field.type) and digits_of(field.type)[1] > MOST_SCALE:
            raise Usage(
                f"Column {field.name!r} is {field.type}; Redshift has {MOST_SCALE} digits after the point at most.",
                remedy="Cast it in the transform.",
            )


def statements_of(schema: "pa.Schema", target: Target) -> TableStatements:
    """Return the SQL about the target for rows of `schema`."""
    return TableStatements(*split_name(target.table), tuple(schema.names), target.key, STORAGES.read_as(schema))


def create_table(connection: Connection, schema: "pa.Schema", target: Target) -> None:
    """Create the table."""
    connection.execute(statements_of(schema, target).create(STORAGES.declared(schema)))


def hold(connection: Connection, schema: "pa.Schema", target: Target) -> TableSchema:
    """Keep others from altering the table until the end of the transaction, and return its schema."""
    connection.execute(statements_of(schema, target).hold())
    table_schema = table_schema_of(connection, *split_name(target.table))
    assert table_schema is not None, "it is held"
    return table_schema


def require_fit(_: Connection, table_schema: TableSchema, schema: "pa.Schema", target: Target, *, decided: bool = False) -> None:
    """Raise Refused unless an existing table takes rows of `schema` and returns them unchanged. `decided`: see `Columns`."""
    if table_schema.kind != "table":
        raise not_a_table(target.table, f"a {table_schema.kind}")
    of = _columns(schema, target, decided=decided)
    require_columns(table_schema.columns, schema, of=of, storage_of=storage_of, folded=folded)


def lengths(table_schema: TableSchema, schema: "pa.Schema", target: Target) -> Lengths:
    """Return how long texts may be; of a longer one, Redshift would silently cut the blanks at its end."""
    declared = {column.name: column.declared for column in table_schema.columns}
    most = lengths_of(schema, lambda name: most_bytes(declared[folded(name)]))
    of, text = _columns(schema, target, decided=True), pa.string()
    return Lengths(of=of, most=most, measure=pc.binary_length, unit="bytes", declared=storage_of(text).declared(text))


def _columns(schema: "pa.Schema", target: Target, *, decided: bool) -> Columns:
    return Columns(table=target.table, named=statements_of(schema, target).name, alter=_ALTER, decided=decided)


def require_allowed(connection: Connection, _: TableSchema, schema: "pa.Schema", target: Target) -> None:
    """Raise Refused if the user lacks a privilege that publishing needs."""
    temporary, user = connection.execute(sql.MAY_STAGE).fetchone()
    if not temporary:
        raise Refused(
            f"User {user!r} may not create temporary tables, in which rows are staged.",
            remedy="GRANT TEMPORARY ON DATABASE to it.",
        )
    needed = (*PRIVILEGES[target.write], *(("DELETE",) if target.write == "upsert" else ()))
    for privilege in (name for name in needed if name != "UPDATE"):
        asked = {"table": statements_of(schema, target).name, "privilege": privilege}
        if not connection.execute(sql.PRIVILEGES, asked).fetchone()[0]:
            raise Refused(
                f"User {user!r} lacks {privilege} on table {target.table!r}.",
                remedy=f"GRANT {privilege} ON {target.table} to it.",
            )


def row_validator(_: Connection, table_schema: TableSchema, sink: SinkName, target: Target) -> RowValidator:
    """Return the check of rows for an existing table."""
    key = frozenset(map(folded, target.key))
    return RowValidator(
        sink=sink,
        table=target.table,
        required=table_schema.required | key,
        key=key,
        octets=sizes_of({column.name: column.declared for column in table_schema.columns}, most_bytes),
        max_row_bytes=MAX_ROW_BYTES,
    )
