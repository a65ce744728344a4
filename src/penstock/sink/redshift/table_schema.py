"""The user's table in Redshift: its schema in the catalog, and whether it takes the rows and returns them unchanged."""

import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.model import SinkName
from penstock.errors import Refused, Usage
from penstock.sink.redshift import statements as sql
from penstock.sink.redshift.database import Connection
from penstock.sink.redshift.row_validator import MAX_ROW_BYTES, RowValidator
from penstock.sink.redshift.statements import TableStatements, folded, quoted, require_name, split_name
from penstock.sink.redshift.storage import MOST_SCALE, STORAGES, most_bytes
from penstock.sink.table.columns import Alter, CatalogTable, TableColumn, require_exact_key
from penstock.sink.table.served import ServedTables
from penstock.sink.table.storage import digits_of
from penstock.sink.table.target import Target, not_a_table

_KINDS = {"v": "view", "r": "table"}
_FILLED = ('"identity"', "identity(")


class TableSchema(CatalogTable):
    """An existing table or view as the catalog declares it."""

    fold = staticmethod(folded)


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


class Tables(ServedTables[Connection, TableSchema, TableStatements]):
    """The user's tables in Redshift."""

    database = "Redshift"
    own_tables = sql.OWN_TABLES
    most_columns = 1599
    alter = Alter(nullable=None, retype=None, quoted=quoted)
    statements = TableStatements
    storages = STORAGES
    unit = "bytes"
    split_name, require_name, fold = staticmethod(split_name), staticmethod(require_name), staticmethod(folded)
    length_of, measure = staticmethod(most_bytes), staticmethod(pc.binary_length)
    folded_name, table_schema_of = staticmethod(split_name), staticmethod(table_schema_of)

    def require_storable(self, rows: "pa.Schema", target: Target) -> None:
        super().require_storable(rows, target)
        require_exact_key(rows, target.key)
        for field in rows:
            if pa.types.is_decimal(field.type) and digits_of(field.type)[1] > MOST_SCALE:
                raise Usage(
                    f"Column {field.name!r} is {field.type}; Redshift has {MOST_SCALE} digits after the point at most.",
                    remedy="Cast it in the transform.",
                )

    def require_fit(
        self, connection: Connection, table_schema: TableSchema, rows: "pa.Schema", target: Target, *, decided: bool = False
    ) -> None:
        if table_schema.kind != "table":
            raise not_a_table(target.table, f"a {table_schema.kind}")
        self.require_columns(connection, table_schema, rows, target, decided=decided)

    def require_allowed(self, connection: Connection, _: TableSchema, rows: "pa.Schema", target: Target) -> None:
        temporary, user = connection.execute(sql.MAY_STAGE).fetchone()
        if not temporary:
            raise Refused(
                f"User {user!r} may not create temporary tables, in which rows are staged.",
                remedy="GRANT TEMPORARY ON DATABASE to it.",
            )
        needed = dict.fromkeys((*target.privileges, *(("DELETE",) if target.write == "upsert" else ())))
        for privilege in (name for name in needed if name != "UPDATE"):
            asked = {"table": self.statements_of(rows, target).name, "privilege": privilege}
            if not connection.execute(sql.PRIVILEGES, asked).fetchone()[0]:
                raise Refused(
                    f"User {user!r} lacks {privilege} on table {target.table!r}.",
                    remedy=f"GRANT {privilege} ON {target.table} to it.",
                )

    def row_check(self, _: Connection, table_schema: TableSchema, sink: SinkName, target: Target) -> RowValidator:
        key = frozenset(map(folded, target.key))
        return RowValidator(
            sink=sink,
            table=target.table,
            required=table_schema.required.union(map(folded, target.filled)),
            key=key,
            octets=table_schema.sizes(most_bytes),
            max_row_bytes=MAX_ROW_BYTES,
        )


TABLES = Tables()
