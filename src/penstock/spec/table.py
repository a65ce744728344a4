"""Settings of sinks that fill one table of a database."""

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

from pydantic import Field, model_validator
from typing_extensions import Self

from penstock.spec.complaint import complaint_error
from penstock.spec.location import Columns, GivenColumns
from penstock.spec.many_tables import FillsManyTables, Tables, Unrouted, require_one_table
from penstock.spec.merge import Merge
from penstock.spec.place import (
    CassandraUrl,
    DuckdbUrl,
    MysqlUrl,
    PostgresUrl,
    RedshiftUrl,
    SqliteUrl,
    SqlServerUrl,
    local_path,
    same_or_nested,
)
from penstock.spec.scalar import Duration, ModuleName, SchemaChanges, WideningChanges
from penstock.spec.selection import (
    Compares,
    OnInvalid,
    RefusesRows,
    TellsBatches,
    UpsertsNewest,
    UpsertsOrDeletes,
    require_no_comparison,
)
from penstock.spec.sql import SQLType
from penstock.support.secret import redact, remember_options

Write: TypeAlias = Literal["append", "upsert", "insert_if_absent", "replace"]
ServedWrite: TypeAlias = Literal["append", "upsert", "insert_if_absent", "replace", "merge"]


class Table(RefusesRows):
    """A table of a database, and how rows get into it."""

    type: str
    table: str = Field(min_length=1, description="The table's name.")
    write: str
    key: Columns = Field(default=(), description="Columns that identify a row; needed by `upsert` and `insert_if_absent`.")
    create: bool = Field(default=True, description="Create the table from the rows' schema if it is missing.")
    schema_changes: SchemaChanges = "fail"

    @model_validator(mode="after")
    def _key_fits_write(self) -> Self:
        if self.write in {"upsert", "insert_if_absent"} and not self.key:
            raise complaint_error(
                f"is missing, but write: {self.write} needs it", remedy="Add key: [columns that identify a row].", at=("key",)
            )
        return self

    def is_table_of(self, other: "Table") -> bool:
        """Return whether both sinks fill one table, as far as names show."""
        return type(other) is type(self) and self._identity == other._identity

    @property
    def _identity(self) -> tuple[object, ...]:
        """What identifies database and table: equal for all spellings of the same table."""
        raise NotImplementedError

    @property
    def database(self) -> str:
        """The database, for messages."""
        raise NotImplementedError


class TableAtURL(Table):
    """A table of a database that a URL names."""

    url: str

    @property
    def database(self) -> str:
        return redact(self.url)


class FileTable(FillsManyTables, TableAtURL, Compares, TellsBatches):
    """A table of a database that is one file."""

    write: Write = Field(
        default="append",
        description="`append` rows, `upsert` by key, `insert_if_absent` by key, or `replace` the whole content (complete mode).",
    )
    schema_changes: WideningChanges = "fail"  # type: ignore[assignment]

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            url: str | PathLike[str],
            table: str,
            tables: "Tables | Mapping[str, Any] | GivenColumns | None" = None,
            unrouted: Unrouted = "fail",
            write: Write = "append",
            key: GivenColumns = (),
            delete_when: str | None = None,
            sequence_by: str | None = None,
            update_when: str | None = None,
            history: bool = False,
            create: bool = True,
            schema_changes: WideningChanges = "fail",
            invalid_rows: OnInvalid = "fail",
            where: str | None = None,
            select: GivenColumns = (),
            exclude: GivenColumns = (),
            batch_column: str | None = None,
        ) -> None: ...

    @property
    def file(self) -> Path:
        """The database file."""
        path = local_path(self.url)
        if path is None:
            raise AssertionError(self)
        return path

    def is_table_of(self, other: "Table") -> bool:
        """Compare names without case, as such databases do."""
        return type(other) is type(self) and same_or_nested(self.url, other.url) and self.table.lower() == other.table.lower()

    @property
    def database(self) -> str:
        return str(self.file)


class SQLite(FileTable, init=False):
    """A table of a SQLite file: rows, marker and, in the same file, the ledger commit in one transaction."""

    type: Literal["sqlite"] = Field(default="sqlite", description="`sqlite`: a table of a SQLite file.")
    url: SqliteUrl = Field(description="`sqlite:///path` relative to the pipeline file, `sqlite:////path` absolute.")


class DuckDB(FileTable, init=False):
    """A table of a DuckDB file: rows and marker commit in one transaction, and the file is closed in between."""

    type: Literal["duckdb"] = Field(default="duckdb", description="`duckdb`: a table of a DuckDB file.")
    url: DuckdbUrl = Field(description="`duckdb:///path` relative to the pipeline file, `duckdb:////path` absolute.")


class ServedTable(FillsManyTables, TableAtURL, Compares, TellsBatches):
    """A table of a database on a server."""

    write: ServedWrite = Field(
        default="append",
        description="`append` rows, `upsert` by key, `insert_if_absent` by key, `replace` the whole content (complete mode), or "
        "`merge` by SQL of your own.",
    )
    merge: Merge | None = Field(
        default=None,
        description="The SQL of `write: merge`: `{sql: …}` or `{file: …}`. `{staged}` in it is the table of the batch's rows.",
    )

    schema_changes: WideningChanges = "fail"  # type: ignore[assignment]

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            url: str,
            table: str,
            tables: "Tables | Mapping[str, Any] | GivenColumns | None" = None,
            unrouted: Unrouted = "fail",
            write: ServedWrite = "append",
            key: GivenColumns = (),
            delete_when: str | None = None,
            sequence_by: str | None = None,
            update_when: str | None = None,
            history: bool = False,
            create: bool = True,
            schema_changes: WideningChanges = "fail",
            invalid_rows: OnInvalid = "fail",
            where: str | None = None,
            select: GivenColumns = (),
            exclude: GivenColumns = (),
            merge: Merge | Mapping[str, Any] | None = None,
            batch_column: str | None = None,
        ) -> None: ...

    @model_validator(mode="after")
    def _merge_fits_write(self) -> Self:
        if self.write == "merge" and self.merge is None:
            raise complaint_error(
                "is missing, but write: merge needs it", remedy="Add merge: {sql: …} or {file: merge.sql}.", at=("merge",)
            )
        if self.write != "merge" and self.merge is not None:
            raise complaint_error(
                f"is given, but write is {self.write}", remedy="Set write: merge, or leave it out.", at=("merge",)
            )
        if self.write == "merge" and self.schema_changes != "fail":
            raise complaint_error(
                f"is {self.schema_changes}, but write is merge, whose SQL says which columns there are",
                remedy="Leave it out, and add columns where you change the SQL.",
                at=("schema_changes",),
            )
        return self


class PostgreSQL(ServedTable, init=False):
    """A table of a PostgreSQL database: rows, marker and, with the same URL, the ledger commit in one transaction."""

    type: Literal["postgres"] = Field(default="postgres", description="`postgres`: a table of a PostgreSQL database.")
    url: PostgresUrl = Field(
        description="`postgresql://user:password@host:5432/database`, best as `${VARIABLE}`; libpq's parameters such as "
        "`?sslmode=verify-full` are passed on."
    )
    table: str = Field(
        min_length=1,
        description="`schema.table`, or `table` in `public`; parts with dots in double quotes. Letters keep their case.",
    )

    @property
    def _identity(self) -> tuple[object, ...]:
        return self.url, self.table.removeprefix("public.")


class MySQL(ServedTable, init=False):
    """A table of a MySQL or MariaDB database: rows, marker and, with the same URL, the ledger commit in one transaction."""

    type: Literal["mysql"] = Field(default="mysql", description="`mysql`: a table of a MySQL or MariaDB database.")
    url: MysqlUrl = Field(
        description="`mysql://user:password@host:3306/database` or `mariadb://…`, best as `${VARIABLE}`; takes `ssl_mode`, "
        "`ssl_ca`, `ssl_cert`, `ssl_key`, `unix_socket` and `connect_timeout`."
    )
    table: str = Field(min_length=1, description="The name of a table in that database, without quotes.")

    @property
    def _identity(self) -> tuple[object, ...]:
        return self.url.partition("://")[2], self.table.lower()  # some servers compare names without case


class Warehouse(FillsManyTables, TableAtURL, UpsertsNewest):
    """A table of a database that Penstock was not run against yet. Names are compared without case."""

    write: Write = Field(
        default="append",
        description="`append` rows, `upsert` by key, `insert_if_absent` by key, or `replace` the whole content (complete mode).",
    )
    default_schema: ClassVar[str]
    longest_name: ClassVar[int] = 90

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            url: str,
            table: str,
            tables: "Tables | Mapping[str, Any] | GivenColumns | None" = None,
            unrouted: Unrouted = "fail",
            write: Write = "append",
            key: GivenColumns = (),
            delete_when: str | None = None,
            sequence_by: str | None = None,
            create: bool = True,
            schema_changes: SchemaChanges = "fail",
            invalid_rows: OnInvalid = "fail",
            where: str | None = None,
            select: GivenColumns = (),
            exclude: GivenColumns = (),
        ) -> None: ...

    @model_validator(mode="before")
    @classmethod
    def _compares_nothing(cls, given: Any) -> Any:
        return require_no_comparison(given, why="that was not run against a live server of this kind yet")

    @property
    def _identity(self) -> tuple[object, ...]:
        return self.url, self.table.lower().removeprefix(f"{self.default_schema}.")


class Redshift(Warehouse, init=False):
    """A table of Amazon Redshift: rows and marker commit in one transaction. Not run against a live cluster yet."""

    default_schema: ClassVar[str] = "public"
    type: Literal["redshift"] = Field(default="redshift", description="`redshift`: a table of Amazon Redshift.")
    url: RedshiftUrl = Field(
        description="`redshift://user:password@host:5439/database`, best as `${VARIABLE}`; takes `sslmode` (`verify-full`, "
        "`verify-ca`, `disable`) and `connect_timeout`."
    )
    table: str = Field(min_length=1, description="`schema.table`, or `table` in `public`; parts with dots in double quotes.")


class SQLServer(Warehouse, init=False):
    """A table of SQL Server or Azure SQL: rows and marker commit in one transaction. Not run against a live server yet."""

    default_schema: ClassVar[str] = "dbo"
    type: Literal["sqlserver"] = Field(default="sqlserver", description="`sqlserver`: a table of SQL Server or Azure SQL.")
    url: SqlServerUrl = Field(
        description="`sqlserver://user:password@host:1433/database`, best as `${VARIABLE}`; takes `ssl_mode` (`verify_identity`, "
        "`verify_ca`, `disabled`), `ssl_ca` and `connect_timeout`."
    )
    table: str = Field(min_length=1, description="`schema.table`, or `table` in `dbo`; parts with dots in double quotes.")


class Cassandra(TableAtURL, UpsertsOrDeletes):
    """A table of Cassandra: keyed writes at one time stamp a batch, which may be repeated; readers may see a part of a batch."""

    type: Literal["cassandra"] = Field(default="cassandra", description="`cassandra`: a table of Cassandra.")
    url: CassandraUrl = Field(
        description="`cassandra://user:password@host:9042,otherhost:9042/keyspace`, best as `${VARIABLE}`; takes `local_dc`, "
        "`consistency` (`local_quorum`, `quorum`, `each_quorum`, `all`), `ssl_mode`, `ssl_ca`, `ssl_cert` and `ssl_key`."
    )
    table: str = Field(min_length=1, description="The name of a table in that keyspace, letters kept, without quotes.")
    write: Literal["append", "upsert"] = Field(
        default="upsert",
        description="`upsert`: a row replaces the one with its key; or `append`, where no key ever comes twice: nothing is read "
        "before it is written.",
    )
    key: Columns = Field(min_length=1, description="All columns of the primary key.")
    partition_by: Columns = Field(
        default=(), description="The first columns of `key` that are the partition key; without it, the first one alone."
    )
    wait: Duration = Field(
        default=300_000,
        description="How long a batch waits for a cluster that does not answer, and is tried again, before the run fails.",
        json_schema_extra={"default": "5m"},
    )

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            url: str,
            table: str,
            key: GivenColumns,
            partition_by: GivenColumns = (),
            write: Literal["append", "upsert"] = "upsert",
            delete_when: str | None = None,
            create: bool = True,
            schema_changes: SchemaChanges = "fail",
            invalid_rows: OnInvalid = "fail",
            where: str | None = None,
            select: GivenColumns = (),
            exclude: GivenColumns = (),
            wait: int | str = "5m",
        ) -> None: ...

    @model_validator(mode="before")
    @classmethod
    def _has_no_sequence(cls, given: Any) -> Any:
        if isinstance(given, Mapping) and "sequence_by" in given:
            raise complaint_error(
                "is given, but in Cassandra the later batch always wins: all of its rows have one time stamp",
                remedy="Leave it out, or write into a table of a SQL database, of Delta or of Iceberg.",
                at=("sequence_by",),
            )
        given = require_one_table(given, why="a sink of type cassandra fills one table")
        return require_no_comparison(given, why="Cassandra cannot compare rows and write as one step")

    @model_validator(mode="after")
    def _partition_leads_key(self) -> Self:
        if self.partition_by and self.key[: len(self.partition_by)] != self.partition_by:
            raise complaint_error(
                f"should be the first columns of key ({', '.join(self.key)}), found {', '.join(self.partition_by)}",
                remedy="Write them first in key, in the same order.",
                at=("partition_by",),
            )
        return self

    @property
    def _identity(self) -> tuple[object, ...]:
        return self.url, self.table


class DBAPI(Table):
    """A table behind any driver of Python's DB-API 2.0, ADBC's included: rows and marker commit in one transaction."""

    type: Literal["dbapi"] = Field(default="dbapi", description="`dbapi`: a table behind any DB-API 2.0 driver.")
    driver: ModuleName = Field(
        description="The module that has `connect()`: `psycopg`, `pymysql`, `sqlite3`, `adbc_driver_sqlite.dbapi`, …"
    )
    connect: Mapping[str, Any] = Field(
        default_factory=dict,
        description="Arguments of `connect()` by name, passed on as they are; secrets as `${VARIABLE}`.",
    )
    table: str = Field(min_length=1, description="The name of a table, or `schema.table`, without quotes.")
    write: Literal["append", "insert_if_absent", "replace"] = Field(
        default="append",
        description="`append` rows, `insert_if_absent` by key, or `replace` the whole content (complete mode).",
    )
    key: Columns = Field(default=(), description="Columns that identify a row; needed by `insert_if_absent`.")
    columns: Mapping[str, SQLType] = Field(
        default_factory=dict, description="SQL types of columns where the table is created and the usual type will not do."
    )
    longest: int = Field(
        default=100_000, ge=1, description="The most characters or bytes of a value; one so long is tried when the table is new."
    )

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            driver: str,
            connect: Mapping[str, Any],
            table: str,
            write: Literal["append", "insert_if_absent", "replace"] = "append",
            key: GivenColumns = (),
            create: bool = True,
            schema_changes: SchemaChanges = "fail",
            invalid_rows: OnInvalid = "fail",
            where: str | None = None,
            select: GivenColumns = (),
            exclude: GivenColumns = (),
            columns: Mapping[str, str] = ...,
            longest: int = 100_000,
        ) -> None: ...

    @model_validator(mode="before")
    @classmethod
    def _compares_nothing(cls, given: Any) -> Any:
        given = require_one_table(given, why="a sink of type dbapi fills one table")
        return require_no_comparison(given, why="behind any driver nothing tells how rows are locked")

    @model_validator(mode="after")
    def _remember(self) -> Self:
        remember_options(self.connect)
        return self

    @property
    def _identity(self) -> tuple[object, ...]:
        return self.driver, self.connect, self.table.lower()

    @property
    def database(self) -> str:
        return f"the database behind {self.driver}"
