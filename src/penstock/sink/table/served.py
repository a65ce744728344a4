"""What sinks into tables on a server share: the session, and how the user's table is checked, created, held and read."""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import pyarrow as pa

from penstock.core.model import Publication, Published
from penstock.errors import Usage
from penstock.sink.table.columns import DeclaresColumn, Lengths, require_distinct_names, require_keyed
from penstock.sink.table.dialect import C, Rows, SqlTables, T
from penstock.sink.table.sequence import is_sequence_text, require_sequence_in
from penstock.sink.table.sink import TableSinkArguments
from penstock.sink.table.sql_sink import SqlSink
from penstock.sink.table.storage import ColumnStorages
from penstock.sink.table.table_statements import StagedTableStatements
from penstock.sink.table.target import Target
from penstock.sql.session import LOCK_TIMEOUT_S, Sessions

if TYPE_CHECKING:
    from typing_extensions import Unpack

S = TypeVar("S", bound=StagedTableStatements)


class ServedTables(SqlTables[C, T, S], Generic[C, T, S]):
    """The user's tables on one kind of server.

    - `most_columns`: one less than the server's own limit: the staging table has one more column.
    - `key_types`: replaces types of columns that are created in a key. `collated`: how types begin whose columns are created with
      a COLLATE.
    - `text_order`: how a text compares by its code points, whatever collation its column has: a format of the column's name.
      Where it is empty, no text says which row is newer.
    - `length_of`: the most that a text column of a type takes, as `measure` counts it in `unit`.
    """

    most_columns: int
    storages: ColumnStorages[Any]
    unit: str
    key_types: Mapping[str, str] = MappingProxyType({})
    collated: tuple[str, ...] = ()
    text_order: str = ""

    # --- what servers differ in

    @staticmethod
    @abstractmethod
    def require_name(name: str, /) -> str:
        """Return a column's name. Raise Usage if the server cannot have it."""

    @staticmethod
    @abstractmethod
    def fold(name: str, /) -> str:
        """Return the name of a table or column as the server compares it."""

    @staticmethod
    @abstractmethod
    def length_of(declared: str, /) -> int | None: ...

    @staticmethod
    @abstractmethod
    def measure(texts: "pa.Array", /) -> "pa.Array": ...

    def collate(self, connection: C) -> str:  # noqa: ARG002 - for those that ask it
        """Return the COLLATE of `collated` columns."""
        return ""

    def scan(self, connection: Any, query: str, rows: "pa.Schema") -> Rows:
        """Yield the rows of `query`, which the connection's `stream` reads by default. Raise NotStoredError."""
        return self.storages.batches(connection.stream(query), rows)

    # --- what they share

    def require_storable(self, rows: "pa.Schema", target: Target) -> None:
        if self.fold(self.split_name(target.table)[1]) in self.own_tables:
            raise Usage(f"Table {target.table!r} is Penstock's own.", remedy="Choose another name for `table:`.")
        require_distinct_names([self.fold(self.require_name(name)) for name in rows.names], database=self.database)
        require_keyed(rows, target.key, most=self.most_columns)
        require_sequence_in(rows, target, unordered=() if self.text_order else {"STRING"})

    def storage_of(self, _: C, __: "pa.Schema") -> Callable[["pa.DataType"], DeclaresColumn]:
        return self.storages.of

    def statements_of(self, rows: "pa.Schema", target: Target) -> S:
        name, read_as = self.split_name(target.table), self.storages.read_as(rows)
        compared = self.text_order if is_sequence_text(rows, target) else "{}"
        return self.statements(*name, tuple(rows.names), target.key, read_as, target.deletes, target.sequence_by, compared)

    def declared(self, connection: C, rows: "pa.Schema", target: Target) -> list[str]:
        declared = zip(rows.names, super().declared(connection, rows, target), strict=True)
        kinds = [self.key_types.get(kind, kind) if name in target.key else kind for name, kind in declared]
        return [kind + self.collate(connection) if kind.startswith(self.collated) else kind for kind in kinds]

    def hold(self, connection: C, rows: "pa.Schema", target: Target) -> T | None:
        connection.execute(self.statements_of(rows, target).hold())
        return super().hold(connection, rows, target)

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

    def require_login(self) -> None:
        """Open a session, and close it. Raises Failed if the server refuses it, Retryable if none answers."""
        with self._database.reader():
            pass

    @property
    def home(self) -> str | None:
        return self._database.home

    def publish_within(self, transaction: Any, publication: Publication) -> Published:
        """Publish in the ledger's transaction on the same database. If this raises, the ledger rolls back and repeats."""
        if not isinstance(transaction, self._joins):
            raise TypeError(f"expected the ledger's connection, found {type(transaction).__name__}")
        joined: Any = transaction
        return self._publish_in_ledger(joined, publication)
