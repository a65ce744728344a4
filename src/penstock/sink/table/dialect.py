"""What databases differ in: their tables, their fault points, and how their errors are read."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

import pyarrow as pa

from penstock.core.deletes import schema_with_deletes
from penstock.core.model import SinkName, Totals
from penstock.sink.spool.writer import RowCheck
from penstock.sink.table.columns import (
    Alter,
    CatalogTable,
    Columns,
    DeclaresColumn,
    missing_columns,
    require_columns,
    types_there,
    wider_columns,
)
from penstock.sink.table.marker_store import Guard
from penstock.sink.table.publication import totals_under_key
from penstock.sink.table.table_statements import TableStatements
from penstock.sink.table.target import Target, types_between
from penstock.sql.session import Session

Rows: TypeAlias = Iterator["pa.RecordBatch"]


class SqlConnection(Session, Protocol):
    """A session of a database. `execute` runs a statement, with its values if there are any, and returns a cursor."""

    @property
    def execute(self) -> Callable[..., Any]: ...


C = TypeVar("C", bound=SqlConnection)
T = TypeVar("T", bound=CatalogTable)
S = TypeVar("S", bound=TableStatements)


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultPoints:
    """The fault points of a dialect's transactions, each with the error that its driver raises for a broken connection.

    `fence`: around the statement that locks the marker; without effect where the whole database is locked instead.
    """

    prepare: Guard
    begin: Guard = nullcontext
    fence: Guard = nullcontext
    mark: Guard = nullcontext
    commit: Guard = nullcontext

    @classmethod
    def of(cls, lost: Callable[[str], Exception], **around: Callable[..., AbstractContextManager[None]]) -> "FaultPoints":
        """Return the points whose `around` is given by name; `lost` makes the error."""
        return cls(**{name: partial(each, error=lost, lost=lost) for name, each in around.items()})


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorCodes:
    """How errors of the driver are read.

    `forbidden`: codes for a privilege that the user lacks. `made`: codes for a table or a column that another run has made.
    """

    code_of: Callable[[Any], Any] = type
    reason_of: Callable[[Any], str] = str
    forbidden: frozenset[Any] = frozenset()
    made: frozenset[Any] = frozenset()


class UserTables(ABC, Generic[C, T]):
    """The user's tables in one kind of database, as `CatalogSink` prepares and reads them. Each `pa.Schema` is that of the rows.

    `case_counts`: whether table names that differ only in case are two. `alter`: its ALTER TABLE, for new columns and remedies.
    """

    case_counts: bool = False
    alter: Alter = Alter()

    # --- what databases differ in

    @staticmethod
    @abstractmethod
    def split_name(name: str, /) -> tuple[str, str]:
        """Return schema and table of a name from the settings. Raise Usage."""

    @staticmethod
    @abstractmethod
    def table_schema_of(connection: C, schema: str, table: str, /) -> T | None:
        """Return the table or view as the catalog declares it, None if there is none."""

    @abstractmethod
    def named(self, target: Target) -> str:
        """Return the table's name in a statement."""

    @abstractmethod
    def require_storable(self, rows: "pa.Schema", target: Target) -> None:
        """Raise Usage for a table name, a column or a key that no table can have."""

    @abstractmethod
    def storage_of(self, connection: C, rows: "pa.Schema") -> Callable[["pa.DataType"], DeclaresColumn]:
        """Return a function that returns the storage for any type. Raise Usage for a type that the database lacks."""

    @abstractmethod
    def create_table(self, connection: C, rows: "pa.Schema", target: Target) -> None:
        """Create the table; the key, where the database enforces one, becomes its primary key."""

    @abstractmethod
    def require_fit(self, connection: C, table_schema: T, rows: "pa.Schema", target: Target, *, decided: bool = False) -> None:
        """Raise Refused unless the table takes the rows and returns them unchanged. `decided`: see `Columns`."""

    def require_allowed(self, connection: C, table_schema: T, rows: "pa.Schema", target: Target) -> None:
        """Raise Refused if the user lacks a privilege that publishing needs."""

    def require_alterable(self, connection: C, table_schema: T, wider: Mapping[str, str], target: Target) -> None:
        """Raise Refused if something that depends on columns keeps them from getting wider types, as far as a catalog shows it.

        `wider`: the statements, by column.
        """

    @abstractmethod
    def row_check(self, connection: C, table_schema: T, sink: SinkName, target: Target) -> RowCheck:
        """Return the check of rows in the tasks."""

    @abstractmethod
    def read(self, connection: C, rows: "pa.Schema", target: Target) -> Rows:
        """Yield every row of the table. Raise NotStoredError, naming the column."""

    # --- what they share

    def columns(self, target: Target, *, decided: bool) -> Columns:
        """Return the comparison of the rows' columns with the table's. `decided`: see `Columns`."""
        return Columns(table=target.table, named=self.named(target), alter=self.alter, decided=decided)

    def require_columns(self, connection: C, table_schema: T, rows: "pa.Schema", target: Target, *, decided: bool) -> Columns:
        """Raise Refused as `columns.require_columns` does. Return the comparison, for further errors."""
        of = self.columns(target, decided=decided)
        require_columns(table_schema, rows, of=of, storage_of=self.storage_of(connection, rows))
        return of

    def missing_columns(self, connection: C, table_schema: T, rows: "pa.Schema", target: Target) -> Mapping[str, str]:
        """Return the columns of the rows that the table lacks, each with the statement that adds it."""
        of = self.columns(target, decided=False)
        return missing_columns(table_schema, rows, of=of, storage_of=self.storage_of(connection, rows))

    def types_there(self, connection: C, table_schema: T, rows: "pa.Schema", filled: "pa.Schema") -> "pa.Schema":
        """Return `filled`, the schema of the rows that are there, with the types in which they lie by now."""
        wanted = {field.name: field.type for field in rows}
        kinds = [kind for field in filled for kind in types_between(field.type, wanted.get(field.name, field.type))]
        storage_of = self.storage_of(connection, pa.schema([(str(at), kind) for at, kind in enumerate(kinds)]))
        return types_there(table_schema, rows, filled, storage_of=storage_of)

    def wider_columns(
        self, connection: C, table_schema: T, rows: "pa.Schema", filled: "pa.Schema", target: Target
    ) -> Mapping[str, str]:
        """Return the columns that are too narrow for the rows, each with the statement that widens it. Raise Refused.

        `filled`: the schema of the rows that are there.
        """
        of, kinds = self.columns(target, decided=False), enumerate([*rows.types, *filled.types])
        storage_of = self.storage_of(connection, pa.schema([(str(at), kind) for at, kind in kinds]))
        return wider_columns(table_schema, rows, filled, of=of, storage_of=storage_of)


class SqlTables(UserTables[C, T], Generic[C, T, S]):
    """The user's tables in a SQL database, as `SqlSink` reads and writes them by `statements`.

    - `database`: its name for messages, None where columns whose names differ only in case are two.
    - `own_tables`: the folded names of Penstock's own tables.
    - `folded_name`: schema and table as the database compares them, where one table has several names.
    """

    database: str | None
    own_tables: frozenset[str]
    statements: type[S]
    folded_name: Callable[[str], tuple[str, str]] | None = None

    @abstractmethod
    def statements_of(self, rows: "pa.Schema", target: Target) -> S:
        """Return the SQL about the target for rows of this schema."""

    @abstractmethod
    def scan(self, connection: C, query: str, rows: "pa.Schema") -> Rows:
        """Yield the rows of `query`, whose columns are those of `rows`. Raise NotStoredError, naming the column."""

    def hold(self, connection: C, rows: "pa.Schema", target: Target) -> T | None:  # noqa: ARG002 - for those that lock the table
        """Keep others from altering the table until the end of the transaction, while they can still write rows.

        Return the table's schema as it is from then on, None if the table is gone. By default, the transaction itself keeps all
        others out.
        """
        return self.table_schema_of(connection, *self.split_name(target.table))

    def declared(self, connection: C, rows: "pa.Schema", target: Target) -> list[str]:  # noqa: ARG002 - for those with other keys
        """Return the column types for creating the table. In its key, no two different texts compare as equal."""
        storage_of = self.storage_of(connection, rows)
        return [storage_of(kind).declared(kind) for kind in rows.types]

    # --- what they share

    def named(self, target: Target) -> str:
        return self.statements(*self.split_name(target.table), ()).name

    def staged(self, rows: "pa.Schema", target: Target) -> "pa.Schema":
        """Return the schema of the target's rows as they are staged."""
        return schema_with_deletes(rows) if target.deletes else rows

    def create_table(self, connection: C, rows: "pa.Schema", target: Target) -> None:
        connection.execute(self.statements_of(rows, target).create(self.declared(connection, rows, target)))

    def read(self, connection: C, rows: "pa.Schema", target: Target) -> Rows:
        return self.scan(connection, self.statements_of(rows, target).read(), rows)

    def totals(self, connection: C, rows: "pa.Schema", target: Target) -> Callable[[str], Totals]:
        """Return a function that counts and hashes a query's rows, all under keys of the batch. It raises PublishFailed."""
        return lambda query: totals_under_key(self.scan(connection, query, rows), target.row_digest, table=target.table)
