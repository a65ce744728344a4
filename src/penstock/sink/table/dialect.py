"""What the databases of `SqlSink` differ in, as one value each."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

import pyarrow as pa

from penstock.core.model import SinkName
from penstock.sink.spool.writer import RowCheck
from penstock.sink.table.columns import TableColumn
from penstock.sink.table.marker_store import MarkerStatements
from penstock.sink.table.publication import Loaded
from penstock.sink.table.target import Target

Guard: TypeAlias = Callable[[], AbstractContextManager[None]]
Rows: TypeAlias = Iterator["pa.RecordBatch"]


class SqlConnection(Protocol):
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
    """The fault points of a dialect's transactions, each with the error that its driver raises for a broken connection."""

    prepare: Guard
    begin: Guard
    fence: Guard
    mark: Guard
    commit: Guard

    @classmethod
    def of(cls, lost: Callable[[str], Exception], **around: Callable[..., AbstractContextManager[None]]) -> "FaultPoints":
        """Return the points whose `around` is given by name; `lost` makes the error."""
        return cls(**{name: partial(each, error=lost, lost=lost) for name, each in around.items()})


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorCodes:
    """How errors of the driver are read.

    `forbidden`: codes for a privilege that the user lacks. `made`: codes for a table or a column that another run has made.
    """

    code_of: Callable[[Any], Any]
    reason_of: Callable[[Any], str]
    forbidden: frozenset[Any]
    made: frozenset[Any]


class OwnStatements(Protocol):
    """The SQL about Penstock's own tables in the schema of the user's table."""

    @property
    def creates(self) -> Mapping[str, Any]:
        """Create each table, by name."""
        ...

    @property
    def add_ledger_id(self) -> Any:
        """Add the column that an older Penstock did not create."""
        ...

    def marker_statements(self) -> MarkerStatements[Any]: ...


class RequiresFit(Protocol[C_contra, T_contra]):
    """Raises Refused unless an existing table takes the rows and returns them unchanged. `decided`: see `Columns`."""

    def __call__(
        self, connection: C_contra, table_schema: T_contra, rows: "pa.Schema", target: Target, /, *, decided: bool = False
    ) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect(Generic[C, T]):
    """How one database does what `SqlSink` asks for. `rows` are Arrow schemas of the rows.

    - `split_name`: schema and table of a name from the settings; `folded_name`: the same as the database compares them, where
      one table has several names.
    - `table_schema_of`: the table in a schema, None if there is none; `hold` reads it after it has kept others from altering
      the table until the end of the transaction, while they can still write rows.
    - `case_counts`: whether table names that differ only in case are two names.
    - `require_storable`: raises Usage for a table name, a column or a key that no table can have.
    - `require_allowed`: raises Refused if the user lacks a privilege that publishing needs.
    - `row_check`: the check of rows in the tasks.
    - `read`: every row of the table. It raises NotStoredError.
    - `write`: writes decided rows. It raises Refused for a value that the table would change by now, Conflict where another
      session writes rows of the same keys.
    """

    case_counts: bool = False
    points: FaultPoints
    codes: ErrorCodes
    split_name: Callable[[str], tuple[str, str]]
    folded_name: Callable[[str], tuple[str, str]] | None
    own_statements: Callable[[str], OwnStatements]
    table_schema_of: Callable[[C, str, str], T | None]
    require_storable: Callable[["pa.Schema", Target], None]
    create_table: Callable[[C, "pa.Schema", Target], None]
    hold: Callable[[C, "pa.Schema", Target], T]
    require_fit: RequiresFit[C, T]
    require_allowed: Callable[[C, T, "pa.Schema", Target], None]
    row_check: Callable[[C, T, SinkName, Target], RowCheck]
    read: Callable[[C, "pa.Schema", Target], Rows]
    write: Callable[[C, Rows, "pa.Schema", T, Target], Loaded]
