"""Settings of the sinks that this version has."""

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, TypeAlias

from pydantic import BeforeValidator, ConfigDict, Discriminator, Field, Tag, model_validator
from typing_extensions import Self

from penstock.secret import redact, remember_options
from penstock.spec.account import FAIL, QUARANTINE, Account, Columns, Route, ShortAccount
from penstock.spec.complaint import wrong
from penstock.spec.describe import described
from penstock.spec.merge import Merge
from penstock.spec.name import AccountKey, ModuleName, PythonName
from penstock.spec.place import CassandraUrl, DuckdbUrl, MysqlUrl, PostgresUrl, SqliteUrl, local_path, same_or_nested
from penstock.spec.quantity import Duration, Size
from penstock.spec.settings import Settings, nearest

Write: TypeAlias = Literal["append", "upsert", "insert_if_absent", "replace"]
ServedWrite: TypeAlias = Literal["append", "upsert", "insert_if_absent", "replace", "merge"]
Compression: TypeAlias = Literal["zstd", "snappy", "gzip", "lz4", "brotli", "none"]

PLANNED: Final = (
    *("delta", "iceberg", "redshift", "sqlserver"),
    *("kafka", "http"),
)
"""Sink types of later versions."""


class Parquet(Settings):
    """The storage writer: one table per account, each row in exactly one account, one pass for all."""

    type: Literal["parquet"] = Field(default="parquet", description="`parquet`: the storage writer.")
    accounts: Mapping[AccountKey, ShortAccount] = Field(
        min_length=1, description="Name of each account and its URL, or a mapping of `url` and `options`."
    )
    route: Route | None = Field(default=None, description="How a row finds its account; needed if there are several.")
    unrouted: str = Field(
        default=FAIL,
        min_length=1,
        description="What happens to a row whose route names no account: `fail` the batch, or the account that takes it.",
    )
    partition_by: Columns = Field(default=(), description="Columns that become directories (`month=3/`) inside the account.")
    compression: Compression = Field(default="zstd", description="Compression of the Parquet pages.")
    target_file_size: Size = Field(
        default=128_000_000,
        description="A new file is begun when one has about this size.",
        json_schema_extra={"default": "128MB"},
    )

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            accounts: Mapping[str, "str | PathLike[str] | Account | Mapping[str, Any]"],
            route: "Route | Mapping[str, Any] | None" = None,
            unrouted: str = FAIL,
            partition_by: "tuple[str, ...] | list[str]" = (),
            compression: Compression = "zstd",
            target_file_size: int | str = "128MB",
        ) -> None: ...

    @model_validator(mode="after")
    def _route_fits_accounts(self) -> Self:
        names = ", ".join(self.accounts)
        reserved = next((name for name in self.accounts if name in {FAIL, QUARANTINE}), None)
        if reserved is not None:
            raise wrong("is a word that unrouted uses", remedy="Give the account another name.", at=("accounts", reserved))
        if self.route is None and len(self.accounts) > 1:
            raise wrong(
                f"is missing, but there are {len(self.accounts)} accounts ({names})",
                remedy="Add route: {column: name}, {hash: [columns]} or {sql: expression}.",
                at=("route",),
            )
        return self

    @model_validator(mode="after")
    def _unrouted_is_known(self) -> Self:
        if self.unrouted == QUARANTINE:
            raise wrong(
                "is quarantine, which is not supported by this version",
                remedy="Use fail, or the name of an account that takes these rows.",
                at=("unrouted",),
            )
        if self.unrouted != FAIL and self.unrouted not in self.accounts:
            guess = nearest(self.unrouted, [*self.accounts, FAIL])
            raise wrong(
                f"names no account, found {described(self.unrouted)}",
                remedy=(f"Did you mean {guess}? " if guess else "") + f"Use fail or one of {', '.join(self.accounts)}.",
                at=("unrouted",),
            )
        return self


class Table(Settings):
    """A table of a database, and how rows get into it."""

    type: str
    table: str = Field(min_length=1, description="The table's name.")
    write: str
    key: Columns = Field(default=(), description="Columns that identify a row; needed by `upsert` and `insert_if_absent`.")
    create: bool = Field(default=True, description="Create the table from the rows' schema if it is missing.")

    @model_validator(mode="after")
    def _key_fits_write(self) -> Self:
        if self.write in {"upsert", "insert_if_absent"} and not self.key:
            raise wrong(f"is needed by write: {self.write}", remedy="Add key: [columns that identify a row].", at=("key",))
        return self

    def is_table_of(self, other: "Table") -> bool:
        """Whether both sinks fill one table."""
        raise NotImplementedError

    @property
    def where(self) -> str:
        """The database, for people."""
        raise NotImplementedError


class FileTable(Table):
    """A table of a database that is one file."""

    url: str
    write: Write = Field(
        default="append",
        description="`append` rows, `upsert` by key, `insert_if_absent` by key, or `replace` the whole content (complete mode).",
    )

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            url: "str | PathLike[str]",
            table: str,
            write: Write = "append",
            key: "tuple[str, ...] | list[str]" = (),
            create: bool = True,
        ) -> None: ...

    @property
    def file(self) -> Path:
        """The database file."""
        path = local_path(self.url)
        if path is None:
            raise AssertionError(self)
        return path

    def is_table_of(self, other: "Table") -> bool:
        """Whether both sinks fill one table; such databases do not tell upper from lower case."""
        return type(other) is type(self) and same_or_nested(self.url, other.url) and self.table.lower() == other.table.lower()

    @property
    def where(self) -> str:
        """The database, for people."""
        return str(self.file)


class Sqlite(FileTable):
    """A table of a SQLite file: rows, marker and, in the same file, the ledger commit in one transaction."""

    type: Literal["sqlite"] = Field(default="sqlite", description="`sqlite`: a table of a SQLite file.")
    url: SqliteUrl = Field(description="`sqlite:///path` relative to the pipeline file, `sqlite:////path` absolute.")


class Duckdb(FileTable):
    """A table of a DuckDB file: rows and marker commit in one transaction, and the file is closed in between."""

    type: Literal["duckdb"] = Field(default="duckdb", description="`duckdb`: a table of a DuckDB file.")
    url: DuckdbUrl = Field(description="`duckdb:///path` relative to the pipeline file, `duckdb:////path` absolute.")


class ServedTable(Table):
    """A table of a database on a server."""

    url: str
    write: ServedWrite = Field(
        default="append",
        description="`append` rows, `upsert` by key, `insert_if_absent` by key, `replace` the whole content (complete mode), or "
        "`merge` by SQL of your own.",
    )
    merge: Merge | None = Field(
        default=None,
        description="The SQL of `write: merge`: `{sql: …}` or `{file: …}`. `{staged}` in it is the table of the batch's rows.",
    )

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            url: str,
            table: str,
            write: ServedWrite = "append",
            key: "tuple[str, ...] | list[str]" = (),
            create: bool = True,
            merge: "Merge | Mapping[str, Any] | None" = None,
        ) -> None: ...

    @model_validator(mode="after")
    def _merge_fits_write(self) -> Self:
        if self.write == "merge" and self.merge is None:
            raise wrong("is needed by write: merge", remedy="Add merge: {sql: …} or {file: merge.sql}.", at=("merge",))
        if self.write != "merge" and self.merge is not None:
            raise wrong(f"is given, but write is {self.write}", remedy="Set write: merge, or leave it out.", at=("merge",))
        return self

    @property
    def where(self) -> str:
        """The database, for people."""
        return redact(self.url)


class Postgres(ServedTable):
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

    def is_table_of(self, other: "Table") -> bool:
        """Whether both sinks fill one table, as far as names tell."""
        return isinstance(other, Postgres) and self.url == other.url and self._qualified == other._qualified

    @property
    def _qualified(self) -> str:
        return self.table.removeprefix("public.")


class MySQL(ServedTable):
    """A table of a MySQL or MariaDB database: rows, marker and, with the same URL, the ledger commit in one transaction."""

    type: Literal["mysql"] = Field(default="mysql", description="`mysql`: a table of a MySQL or MariaDB database.")
    url: MysqlUrl = Field(
        description="`mysql://user:password@host:3306/database` or `mariadb://…`, best as `${VARIABLE}`; takes `ssl_mode`, "
        "`ssl_ca`, `ssl_cert`, `ssl_key`, `unix_socket` and `connect_timeout`."
    )
    table: str = Field(min_length=1, description="The name of a table in that database, without quotes.")

    def is_table_of(self, other: "Table") -> bool:
        """Whether both sinks fill one table, as far as names tell; some servers do not tell upper from lower case."""
        return isinstance(other, MySQL) and self._place == other._place and self.table.lower() == other.table.lower()

    @property
    def _place(self) -> str:
        return self.url.partition("://")[2]


class Cassandra(Table):
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
            key: "tuple[str, ...] | list[str]",
            partition_by: "tuple[str, ...] | list[str]" = (),
            write: Literal["append", "upsert"] = "upsert",
            create: bool = True,
            wait: int | str = "5m",
        ) -> None: ...

    @model_validator(mode="after")
    def _partition_leads_key(self) -> Self:
        if self.partition_by and self.key[: len(self.partition_by)] != self.partition_by:
            raise wrong(
                f"should be the first columns of key ({', '.join(self.key)}), found {', '.join(self.partition_by)}",
                remedy="Write them first in key, in the same order.",
                at=("partition_by",),
            )
        return self

    def is_table_of(self, other: "Table") -> bool:
        """Whether both sinks fill one table, as far as names tell."""
        return isinstance(other, Cassandra) and self.url == other.url and self.table == other.table

    @property
    def where(self) -> str:
        """The keyspace, for people."""
        return redact(self.url)


class Dbapi(Table):
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
    columns: Mapping[str, str] = Field(
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
            key: "tuple[str, ...] | list[str]" = (),
            create: bool = True,
            columns: Mapping[str, str] | None = None,
            longest: int = 100_000,
        ) -> None: ...

    @model_validator(mode="after")
    def _remember(self) -> Self:
        remember_options(self.connect)
        return self

    def is_table_of(self, other: "Table") -> bool:
        """Whether both sinks fill one table, as far as names tell."""
        return isinstance(other, Dbapi) and (self.driver, self.connect, self.table.lower()) == (
            other.driver,
            other.connect,
            other.table.lower(),
        )

    @property
    def where(self) -> str:
        """The database, for people."""
        return f"the database behind {self.driver}"


class Console(Settings):
    """Prints rows for people to look at. Delivers at least once."""

    type: Literal["console"] = Field(default="console", description="`console`: prints rows.")
    rows: int = Field(default=20, ge=0, description="How many rows of each batch to print at most.")
    truncate: int = Field(default=40, ge=0, description="Longest value to print in characters; 0 prints all of it.")

    if TYPE_CHECKING:

        def __init__(self, *, rows: int = 20, truncate: int = 40) -> None: ...


class Memory(Settings):
    """Keeps rows in the driver's memory, for tests. They are gone when the process ends."""

    type: Literal["memory"] = Field(default="memory", description="`memory`: keeps rows in the driver.")

    if TYPE_CHECKING:

        def __init__(self) -> None: ...


class PythonSink(Settings):
    """A sink written by the user. All other keys are its options."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="allow")

    python: PythonName = Field(description="`package.module:Class`; every other key is passed to it as an option.")

    @model_validator(mode="after")
    def _remember(self) -> Self:
        remember_options(self.options)
        return self

    @property
    def type(self) -> str:
        """What reports call this kind of sink."""
        return "python"

    @property
    def options(self) -> Mapping[str, Any]:
        """The other keys with their values."""
        return self.model_extra or {}


SUPPORTED: Final = ("parquet", "postgres", "mysql", "sqlite", "duckdb", "cassandra", "dbapi", "console", "memory")


def _tag(value: Any) -> str | None:
    if isinstance(value, Settings):
        return str(getattr(value, "type", ""))
    if not isinstance(value, Mapping):
        return "console"
    return "python" if "python" in value and "type" not in value else value.get("type")


def _check_type(value: Any) -> Any:
    if not isinstance(value, Mapping) or ("python" in value and "type" not in value):
        return value
    supported = f"This version has the types {', '.join(SUPPORTED)}, and python: package.module:Class."
    if "type" not in value:
        raise wrong("is missing", remedy=f"Add one: {supported}", at=("type",))
    kind = value["type"]
    if kind in PLANNED:
        raise wrong(f"{kind} is not supported by this version", remedy=supported, at=("type",))
    if kind not in SUPPORTED:
        guess = nearest(str(kind), SUPPORTED)
        raise wrong(
            f"is no type of sink, found {described(kind)}",
            remedy=(f"Did you mean {guess}? " if guess else "") + supported,
            at=("type",),
        )
    return value


Sink = Annotated[
    Annotated[Parquet, Tag("parquet")]
    | Annotated[Sqlite, Tag("sqlite")]
    | Annotated[Duckdb, Tag("duckdb")]
    | Annotated[Postgres, Tag("postgres")]
    | Annotated[MySQL, Tag("mysql")]
    | Annotated[Cassandra, Tag("cassandra")]
    | Annotated[Dbapi, Tag("dbapi")]
    | Annotated[Console, Tag("console")]
    | Annotated[Memory, Tag("memory")]
    | Annotated[PythonSink, Tag("python")],
    Discriminator(_tag),
    BeforeValidator(_check_type),
]
"""Settings of any sink."""
