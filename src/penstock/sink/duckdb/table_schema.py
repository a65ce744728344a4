"""Schema of a DuckDB table: read from the catalog, and checked to store every row unchanged and under its key."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import duckdb
import pyarrow as pa

from penstock.core.model import SinkName
from penstock.errors import Refused, Usage
from penstock.sink.duckdb import statements as sql
from penstock.sink.duckdb.statements import TableStatements
from penstock.sink.duckdb.storage import RowValidator, restored, stored_schema
from penstock.sink.table.columns import CatalogTable, Columns, TableColumn, require_distinct_names
from penstock.sink.table.dialect import Rows, SqlTables
from penstock.sink.table.sequence import is_sequence_text, require_sequence_in
from penstock.sink.table.target import BY_KEY, NotStoredError, Target, not_a_table, require_key_in

_FETCHED_ROWS = 20_000
_SORTS = {"integers": ("TINYINT", "SMALLINT", "INTEGER", "BIGINT"), "floats": ("FLOAT", "DOUBLE")}
_ROOM = {name: (sort, place) for sort, names in _SORTS.items() for place, name in enumerate(names)}
_DECIMAL = re.compile(r"DECIMAL\((\d+),(\d+)\)")


class TableSchema(CatalogTable):
    """An existing table or view in the catalog, which shows generated columns as ones with a default."""

    fold = staticmethod(str.lower)


@dataclass(frozen=True, slots=True)
class Exactly:
    """A type that columns of that very type store, and those of the same sort with more room, which a start has widened."""

    name: str
    also: str = ""

    def declared(self, _kind: "pa.DataType") -> str:
        return self.name

    def takes(self, declared: str, _kind: "pa.DataType") -> bool:
        """Return whether a column of the type `declared` keeps every value of this type."""
        (sort, room), (own, least) = _room(declared), _room(self.name)
        return sort == own and room >= least


def _room(declared: str) -> tuple[str, int]:
    """Return the sort of a type, and how much room its values have."""
    decimal = _DECIMAL.fullmatch(declared)
    return (f"decimals of scale {decimal[2]}", int(decimal[1])) if decimal else _ROOM.get(declared, (declared, 0))


class Tables(SqlTables["duckdb.DuckDBPyConnection", TableSchema, TableStatements]):
    """The user's tables in a DuckDB file."""

    database = "DuckDB"
    own_tables = sql.OWN_TABLES
    statements = TableStatements

    @staticmethod
    def split_name(name: str) -> tuple[str, str]:
        return "main", name

    @staticmethod
    def table_schema_of(connection: "duckdb.DuckDBPyConnection", _: str, table: str) -> TableSchema | None:
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

    def storage_of(self, connection: "duckdb.DuckDBPyConnection", rows: "pa.Schema") -> Callable[["pa.DataType"], Exactly]:
        stored = zip(rows.types, stored_schema(rows), strict=True)
        storages = {kind: Exactly(_described(connection, field)) for kind, field in stored}

        def storage(kind: "pa.DataType") -> Exactly:
            if kind not in storages:
                storages[kind] = Exactly(_described(connection, stored_schema(pa.schema([("value", kind)])).field(0)))
            return storages[kind]

        return storage

    def statements_of(self, rows: "pa.Schema", target: Target) -> TableStatements:
        return TableStatements(
            *("main", target.table, tuple(rows.names), target.key),
            deletes=target.deletes,
            sequence_by=target.sequence_by,
            sequence_as="encode({})" if is_sequence_text(rows, target, fold=str.lower) else "{}",
        )

    def scan(self, connection: "duckdb.DuckDBPyConnection", query: str, rows: "pa.Schema") -> Rows:
        for batch in connection.execute(query).to_arrow_reader(_FETCHED_ROWS):
            columns = [_restored(field, column) for field, column in zip(rows, batch.columns, strict=True)]
            yield pa.RecordBatch.from_arrays(columns, names=rows.names)

    def require_storable(self, rows: "pa.Schema", target: Target) -> None:
        if target.table.lower() in self.own_tables:
            raise Usage(f"Table {target.table!r} is Penstock's own.", remedy="Choose another name for `table:`.")
        folded = [name.lower() for name in rows.names]
        require_distinct_names(folded, database=self.database)
        if not all(rows.names):
            raise Usage("The rows have a column without a name.", remedy="Name it in the transform.")
        require_key_in(rows, target.key, [*rows.names, *folded, *(name for name in target.key if name.lower() in folded)])
        require_sequence_in(rows, target, fold=str.lower)

    def require_fit(
        self,
        connection: "duckdb.DuckDBPyConnection",
        table_schema: TableSchema,
        rows: "pa.Schema",
        target: Target,
        *,
        decided: bool = False,
    ) -> None:
        if table_schema.kind != "table":
            raise not_a_table(target.table, f"a {table_schema.kind}")
        of = self.require_columns(connection, table_schema, rows, target, decided=decided)
        _require_exact_key(connection, rows, target, of)
        if target.write in BY_KEY and not can_prepare(connection, self.statements_of(rows, target).tells_apart):
            raise of.no_unique_index(target.key)

    def create_table(self, connection: "duckdb.DuckDBPyConnection", rows: "pa.Schema", target: Target) -> None:
        with refused(target):
            super().create_table(connection, rows, target)

    def row_check(
        self, _: "duckdb.DuckDBPyConnection", table_schema: TableSchema, sink: SinkName, target: Target
    ) -> RowValidator:
        required = table_schema.required.union(map(str.lower, target.filled))
        return RowValidator(sink=sink, table=target.table, required=required)


TABLES = Tables()


def can_prepare(connection: "duckdb.DuckDBPyConnection", statement: str) -> bool:
    """Return whether the table is as `statement` needs it, which is not run: the database may be open for reading only."""
    try:
        connection.execute(f"PREPARE penstock_trial AS {statement}")
    except duckdb.BinderException:
        return False
    connection.execute("DEALLOCATE penstock_trial")
    return True


def _require_exact_key(connection: "duckdb.DuckDBPyConnection", rows: "pa.Schema", target: Target, of: Columns) -> None:
    """Raise Refused for a key whose collation takes different texts for equal."""
    key, statements = {name.lower() for name in target.key}, TABLES.statements_of(rows, target)
    for field in rows:
        if field.name.lower() in key and pa.types.is_string(field.type):
            row = connection.execute(statements.folds(field.name)).fetchone()
            if row is not None and row[0]:
                raise Refused(
                    f"Column {field.name!r} of the key of table {target.table!r} has a collation that takes different texts for "
                    "equal.",
                    remedy=of.made_anew(field.name, "without COLLATE"),
                )


def _described(connection: "duckdb.DuckDBPyConnection", field: "pa.Field") -> str:
    """Return the type of a column in DuckDB. Raise Usage for one that DuckDB lacks."""
    try:
        return str(connection.from_arrow(pa.table([pa.nulls(0, field.type)], names=["value"])).types[0])
    except duckdb.Error as cause:
        raise Usage(
            f"Column {field.name!r} has a type that DuckDB lacks: {cause}.", remedy="Cast it in the transform."
        ) from cause


def _restored(field: "pa.Field", column: "pa.Array") -> "pa.Array":
    try:
        return restored(column, field.type)
    except pa.ArrowNotImplementedError as cause:  # names a function of Arrow's, where somebody has altered the column
        raise NotStoredError(f"column {field.name!r}: expected values of type {field.type}, found {column.type}") from cause
    except (NotStoredError, pa.ArrowException) as cause:
        raise NotStoredError(f"column {field.name!r}: {cause}") from cause


@contextmanager
def refused(target: Target) -> Iterator[None]:
    """Raise Refused for a statement that does not suit the table."""
    try:
        yield
    except (duckdb.BinderException, duckdb.InvalidTypeException, duckdb.CatalogException, duckdb.ParserException) as cause:
        raise Refused(
            f"Rows cannot be written into table {target.table!r}: {str(cause).partition(chr(10))[0]}.",
            remedy="Change the table, `write:` or `key:`; a key needs a primary key, a UNIQUE constraint or a unique index on "
            "exactly its columns.",
        ) from cause
