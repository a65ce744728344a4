"""What the databases of `CatalogSink` and `SqlSink` differ in: one `Dialect` value for each database."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

import pyarrow as pa

from penstock.core.model import SinkName
from penstock.sink.spool.writer import RowCheck
from penstock.sink.table.columns import TableColumn
from penstock.sink.table.marker_store import Guard, MarkerStatements
from penstock.sink.table.publication import Loaded
from penstock.sink.table.target import Target
from penstock.sql.session import Session

Rows: TypeAlias = Iterator["pa.RecordBatch"]


class SqlConnection(Session, Protocol):
    """A session of a database. `execute` runs a statement, with its values if there are any, and returns a cursor."""

    @property
    def execute(self) -> Callable[..., Any]: ...


class TableSchema(Protocol):
    """An existing table or view as the catalog declares it."""

    @property
    def kind(self) -> str: ...
    @property
    def columns(self) -> tuple[TableColumn, ...]: ...


C = TypeVar("C", bound=SqlConnection)
C_contra = TypeVar("C_contra", bound=SqlConnection, contravariant=True)
T = TypeVar("T", bound=TableSchema)
T_contra = TypeVar("T_contra", bound=TableSchema, contravariant=True)


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


class RequiresFit(Protocol[C_contra, T_contra]):
    """Raises Refused unless an existing table takes the rows and returns them unchanged. `decided`: see `Columns`."""

    def __call__(
        self, connection: C_contra, table_schema: T_contra, rows: "pa.Schema", target: Target, /, *, decided: bool = False
    ) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect(Generic[C, T]):
    """How one database does what `CatalogSink` asks for. Each `pa.Schema` is that of the rows.

    - `case_counts`: whether table names that differ only in case are two names.
    - `split_name`: schema and table of a name from the settings.
    - `table_schema_of`: the table in a schema, None if there is none.
    - `require_storable`: raises Usage for a table name, a column or a key that no table can have.
    - `missing_columns`: the columns of the rows that an existing table lacks, each with the statement that adds it.
    - `require_allowed`: raises Refused if the user lacks a privilege that publishing needs; None without users.
    - `row_check`: the check of rows in the tasks.
    - `read`: every row of the table. It raises NotStoredError.
    """

    case_counts: bool = False
    points: FaultPoints
    split_name: Callable[[str], tuple[str, str]]
    table_schema_of: Callable[[C, str, str], T | None]
    require_storable: Callable[["pa.Schema", Target], None]
    create_table: Callable[[C, "pa.Schema", Target], None]
    require_fit: RequiresFit[C, T]
    missing_columns: Callable[[C, T, "pa.Schema", Target], Mapping[str, str]]
    require_allowed: Callable[[C, T, "pa.Schema", Target], None] | None = None
    row_check: Callable[[C, T, SinkName, Target], RowCheck]
    read: Callable[[C, "pa.Schema", Target], Rows]


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlDialect(Dialect[C, T]):
    """How one database does what `SqlSink` asks for.

    - `folded_name`: schema and table as the database compares them, where one table has several names.
    - `hold`: the table's schema, read after it has kept others from altering the table until the end of the transaction, while
      they can still write rows; None where the transaction itself keeps all others out.
    - `write`: writes decided rows in their order. Of several rows with one key, `upsert` keeps the last and `insert_if_absent`
      the first. If rows have the column of `core.deletes`, `upsert` deletes the row of a key if its last one deletes. It raises
      Refused for a value that the table, altered since, would change, and Conflict where another session writes rows of the
      same keys.
    """

    codes: ErrorCodes = ErrorCodes()
    folded_name: Callable[[str], tuple[str, str]] | None = None
    own_statements: Callable[[str], MarkerStatements]
    hold: Callable[[C, "pa.Schema", Target], T] | None = None
    write: Callable[[C, Rows, "pa.Schema", T, Target], Loaded]
