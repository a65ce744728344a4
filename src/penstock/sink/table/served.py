"""What sinks into tables on a server share: the session, and how the user's table is checked, created, held and read."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import pyarrow as pa

from penstock.core.deletes import schema_with_deletes
from penstock.core.model import Publication, Published, SinkName, Totals
from penstock.errors import Usage
from penstock.sink.spool.writer import RowCheck
from penstock.sink.table.columns import (
    Alter,
    CatalogTable,
    Columns,
    Lengths,
    missing_columns,
    require_distinct_names,
    require_keyed,
)
from penstock.sink.table.dialect import C, ErrorCodes, FaultPoints, Rows, SqlDialect
from penstock.sink.table.marker_store import MarkerStatements
from penstock.sink.table.publication import Loaded, totals_under_key
from penstock.sink.table.sink import TableSinkArguments
from penstock.sink.table.sql_sink import SqlSink
from penstock.sink.table.storage import ColumnStorages
from penstock.sink.table.table_statements import StagedTableStatements
from penstock.sink.table.target import Target
from penstock.sql.session import LOCK_TIMEOUT_S, Sessions

if TYPE_CHECKING:
    from typing_extensions import Unpack

S = TypeVar("S", bound=StagedTableStatements)
T = TypeVar("T", bound=CatalogTable)


class ServedTables(ABC, Generic[C, T, S]):
    """The user's tables on one kind of server. Most methods are parts of its `SqlDialect`, and are described there.

    - `database`: its name for messages, None where columns whose names differ only in case are two.
    - `own_tables`: the folded names of Penstock's own tables.
    - `most_columns`: one less than the server's own limit: the staging table has one more column.
    - `key_types`: replaces types of columns that are created in a key. `collated`: how types begin whose columns are created with
      a COLLATE.
    - `length_of`: the most that a text column of a type takes, as `measure` counts it in `unit`.
    """

    database: str | None
    own_tables: frozenset[str]
    most_columns: int
    alter: Alter
    statements: type[S]
    storages: ColumnStorages[Any]
    unit: str
    key_types: Mapping[str, str] = MappingProxyType({})
    collated: tuple[str, ...] = ()

    # --- what servers differ in

    @staticmethod
    @abstractmethod
    def split_name(name: str, /) -> tuple[str, str]: ...

    @staticmethod
    @abstractmethod
    def require_name(name: str, /) -> str:
        """Return a column's name. Raise Usage if the server cannot have it."""

    @staticmethod
    @abstractmethod
    def fold(name: str, /) -> str:
        """Return the name as the server compares it."""

    @staticmethod
    @abstractmethod
    def length_of(declared: str, /) -> int | None: ...

    @staticmethod
    @abstractmethod
    def measure(texts: "pa.Array", /) -> "pa.Array": ...

    @staticmethod
    @abstractmethod
    def table_schema_of(connection: C, schema: str, table: str, /) -> T | None: ...

    @abstractmethod
    def require_fit(self, connection: C, table_schema: T, rows: "pa.Schema", target: Target, *, decided: bool = False) -> None:
        """Raise Refused unless the table takes the rows and returns them unchanged. `decided`: see `Columns`."""

    @abstractmethod
    def require_allowed(self, connection: C, table_schema: T, rows: "pa.Schema", target: Target) -> None:
        """Raise Refused if the user lacks a privilege that publishing needs."""

    @abstractmethod
    def row_check(self, connection: C, table_schema: T, sink: SinkName, target: Target) -> RowCheck:
        """Return the check of rows in the tasks."""

    @abstractmethod
    def scan(self, connection: C, query: str, rows: "pa.Schema") -> Rows:
        """Yield the rows of `query`, whose columns are those of `rows`. Raise NotStoredError, naming the column."""

    # --- what they share

    def dialect(
        self,
        *,
        points: FaultPoints,
        codes: ErrorCodes,
        own_statements: Callable[[str], MarkerStatements],
        write: "Callable[[C, Rows, pa.Schema, T, Target], Loaded]",
        case_counts: bool = False,
        folded_name: Callable[[str], tuple[str, str]] | None = None,
    ) -> SqlDialect[C, T]:
        return SqlDialect(
            points=points,
            codes=codes,
            case_counts=case_counts,
            split_name=self.split_name,
            folded_name=folded_name,
            own_statements=own_statements,
            table_schema_of=self.table_schema_of,
            require_storable=self.require_storable,
            create_table=self.create_table,
            hold=self.hold,
            require_fit=self.require_fit,
            missing_columns=self.missing_columns,
            require_allowed=self.require_allowed,
            row_check=self.row_check,
            read=self.read,
            write=write,
        )

    def require_storable(self, rows: "pa.Schema", target: Target) -> None:
        """Raise Usage for a table name, a column or a key that no table can have."""
        if self.fold(self.split_name(target.table)[1]) in self.own_tables:
            raise Usage(f"Table {target.table!r} is Penstock's own.", remedy="Choose another name for `table:`.")
        require_distinct_names([self.fold(self.require_name(name)) for name in rows.names], database=self.database)
        require_keyed(rows, target.key, most=self.most_columns)

    def statements_of(self, rows: "pa.Schema", target: Target) -> S:
        """Return the SQL about the target for rows of this schema."""
        name, read_as = self.split_name(target.table), self.storages.read_as(rows)
        return self.statements(*name, tuple(rows.names), target.key, read_as, target.deletes)

    def staged(self, rows: "pa.Schema", target: Target) -> "pa.Schema":
        """Return the schema of the target's rows as they are staged."""
        return schema_with_deletes(rows) if target.deletes else rows

    def create_table(self, connection: C, rows: "pa.Schema", target: Target) -> None:
        connection.execute(self.statements_of(rows, target).create(self.declared(connection, rows, target)))

    def declared(self, connection: C, rows: "pa.Schema", target: Target) -> list[str]:
        """Return the column types for creating the table. In its key, no two different texts compare as equal."""
        declared = zip(rows.names, self.storages.declared(rows), strict=True)
        kinds = [self.key_types.get(kind, kind) if name in target.key else kind for name, kind in declared]
        return [kind + self.collate(connection) if kind.startswith(self.collated) else kind for kind in kinds]

    def collate(self, connection: C) -> str:  # noqa: ARG002 - for those that ask it
        """Return the COLLATE of `collated` columns."""
        return ""

    def hold(self, connection: C, rows: "pa.Schema", target: Target) -> T:
        """Keep others from altering the table until the end of the transaction, and return its schema."""
        connection.execute(self.statements_of(rows, target).hold())
        table_schema = self.table_schema_of(connection, *self.split_name(target.table))
        assert table_schema is not None, "it is held"
        return table_schema

    def missing_columns(self, _: C, table_schema: T, rows: "pa.Schema", target: Target) -> Mapping[str, str]:
        """Return the columns of the rows that the table lacks, each with the statement that adds it."""
        of = self.columns(target, decided=False)
        return missing_columns(table_schema.columns, rows, of=of, storage_of=self.storages.of, folded=self.fold)

    def read(self, connection: C, rows: "pa.Schema", target: Target) -> Rows:
        return self.scan(connection, self.statements_of(rows, target).read(), rows)

    def totals(self, connection: C, rows: "pa.Schema", target: Target) -> Callable[[str], Totals]:
        """Return a function that counts and hashes a query's rows, all under keys of the batch. It raises PublishFailed."""
        return lambda query: totals_under_key(self.scan(connection, query, rows), target.row_digest, table=target.table)

    def columns(self, target: Target, *, decided: bool) -> Columns:
        named = self.statements(*self.split_name(target.table), ()).name
        return Columns(table=target.table, named=named, alter=self.alter, decided=decided)

    def lengths(self, table_schema: T, rows: "pa.Schema", target: Target) -> Lengths:
        """Return the check of text lengths: the server would silently cut excess blanks off the end of a longer text."""
        most, text = table_schema.text_lengths(rows, self.length_of), pa.string()
        declared = self.storages.of(text).declared(text)
        of = self.columns(target, decided=True)
        return Lengths(of=of, most=most, measure=self.measure, unit=self.unit, declared=declared)


class ServedSink(SqlSink[C, T]):
    """A `TableSink` into one table on a server. Waits `lock_timeout_s` for another session's lock, then raises Retryable.

    `_joins`: the class of a ledger's connection in whose transaction the sink can publish; empty where there is none.
    """

    _database: Sessions[C]
    _database_type: ClassVar[Callable[..., Sessions[Any]]]
    _joins: ClassVar[type | tuple[()]] = ()

    def __init__(self, *, url: str, lock_timeout_s: float = LOCK_TIMEOUT_S, **filling: "Unpack[TableSinkArguments]") -> None:
        super().__init__(**filling)
        self._database = self._database_type(url, application=f"penstock:{self._name}", lock_timeout_s=lock_timeout_s)

    @property
    def home(self) -> str | None:
        return self._database.home

    def publish_within(self, transaction: Any, publication: Publication) -> Published:
        """Publish in the ledger's transaction on the same database. If this raises, the ledger rolls back and repeats."""
        if not isinstance(transaction, self._joins):
            raise TypeError(f"expected the ledger's connection, found {type(transaction).__name__}")
        joined: Any = transaction
        return self._publish_in_ledger(joined, publication)
