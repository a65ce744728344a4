"""Settings of all sinks, as the union `Sink`."""

from collections.abc import Mapping
from os import PathLike
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, Protocol, TypeAlias, get_args, runtime_checkable

from pydantic import BeforeValidator, ConfigDict, Discriminator, Field, PlainValidator, Tag, WithJsonSchema, model_validator
from typing_extensions import Self

from penstock.core.model import Json
from penstock.spec.complaint import complaint_error, described
from penstock.spec.delta import Delta
from penstock.spec.http import HTTP
from penstock.spec.iceberg import Iceberg
from penstock.spec.kafka import Kafka
from penstock.spec.lake import ExistingRows
from penstock.spec.location import FAIL, QUARANTINE, Account, Columns, GivenColumns, Route, ShortAccount
from penstock.spec.scalar import PYTHON_SCHEMA, AccountKey, Size, python_name
from penstock.spec.selection import TakesRows
from penstock.spec.settings import Settings, nearest
from penstock.spec.table import DBAPI, Cassandra, DuckDB, MySQL, PostgreSQL, Redshift, SQLite, SQLServer
from penstock.support.secret import remember_options

Compression: TypeAlias = Literal["zstd", "snappy", "gzip", "lz4", "brotli", "none"]
Encoding: TypeAlias = Literal[
    "dictionary", "plain", "delta_binary_packed", "delta_byte_array", "delta_length_byte_array", "byte_stream_split"
]
EncodingOfAll: TypeAlias = Literal["auto", "dictionary", "plain"]


def _column_encoding(value: Any) -> Any:
    if isinstance(value, str) and value not in get_args(EncodingOfAll):
        raise complaint_error(
            f"should be {', '.join(get_args(EncodingOfAll))} or a mapping of columns, found {described(value)}",
            remedy="Write column_encoding: auto, or {column: encoding} for some columns.",
        )
    return value


ColumnEncoding: TypeAlias = Annotated[
    Annotated[EncodingOfAll, Tag("all")] | Annotated[Mapping[str, Encoding], Tag("some")],
    Discriminator(lambda value: "all" if isinstance(value, str) else "some"),
    BeforeValidator(_column_encoding),
    WithJsonSchema(
        {
            "anyOf": [
                {"enum": list(get_args(EncodingOfAll)), "type": "string"},
                {"additionalProperties": {"enum": list(get_args(Encoding)), "type": "string"}, "type": "object"},
            ]
        }
    ),
]
"""One encoding for all columns, or a mapping from a column's path to its encoding."""


class Parquet(TakesRows):
    """The storage writer: one table per account, each row in exactly one account, one pass for all."""

    type: Literal["parquet"] = Field(default="parquet", description="`parquet`: the storage writer.")
    accounts: Mapping[AccountKey, ShortAccount] = Field(
        min_length=1, description="Name of each account and its URL, or a mapping of `url` and `options`."
    )
    route: Route | None = Field(default=None, description="How a row finds its account; needed if there are several.")
    unrouted: str = Field(
        default=FAIL,
        min_length=1,
        description="What happens to a row whose route names no account: `fail` the batch, put it aside (`quarantine`), or the "
        "account that takes it.",
    )
    partition_by: Columns = Field(default=(), description="Columns that become directories (`month=3/`) inside the account.")
    compression: Compression = Field(default="zstd", description="Compression of the Parquet pages.")
    column_encoding: ColumnEncoding = Field(
        default="auto",
        description="Parquet encoding of columns. `auto` chooses by the first rows: `dictionary` where values repeat, else "
        "`delta_binary_packed` for numbers and times that lie close, else `plain`. `dictionary` or `plain` for all columns, or "
        "`{column: encoding}` for some; inside of nested columns as in `tags.list.element`.",
    )
    dictionary_pagesize_limit: Size = Field(
        default=1 << 20,
        description="A column whose dictionary is larger goes on without one, in each row group.",
        json_schema_extra={"default": "1MiB"},
    )
    target_file_size: Size = Field(
        default=128_000_000,
        description="A new file is begun when one has about this size.",
        json_schema_extra={"default": "128MB"},
    )
    existing_rows: ExistingRows = Field(
        default="refuse",
        description="What becomes of files of others that are in an account before the first batch: `refuse` them, or `keep` "
        "them. With `keep`, `verify` and `files` leave out whatever Penstock did not write there.",
    )

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            accounts: Mapping[str, "str | PathLike[str] | Account | Mapping[str, Any]"],
            route: "Route | Mapping[str, Any] | None" = None,
            unrouted: str = FAIL,
            partition_by: GivenColumns = (),
            compression: Compression = "zstd",
            column_encoding: EncodingOfAll | Mapping[str, Encoding] = "auto",
            dictionary_pagesize_limit: int | str = "1MiB",
            target_file_size: int | str = "128MB",
            existing_rows: ExistingRows = "refuse",
            where: str | None = None,
            select: GivenColumns = (),
            exclude: GivenColumns = (),
        ) -> None: ...

    @model_validator(mode="after")
    def _route_fits_accounts(self) -> Self:
        names = ", ".join(self.accounts)
        reserved = next((name for name in self.accounts if name in {FAIL, QUARANTINE}), None)
        if reserved is not None:
            raise complaint_error(
                "is a word that unrouted uses", remedy="Give the account another name.", at=("accounts", reserved)
            )
        if self.route is None and len(self.accounts) > 1:
            raise complaint_error(
                f"is missing, but there are {len(self.accounts)} accounts ({names})",
                remedy="Add route: {column: name}, {hash: [columns]} or {sql: expression}.",
                at=("route",),
            )
        return self

    @property
    def puts_aside(self) -> str | None:
        return "unrouted" if self.unrouted == QUARANTINE else None

    @model_validator(mode="after")
    def _unrouted_is_known(self) -> Self:
        if self.unrouted not in {FAIL, QUARANTINE, *self.accounts}:
            guess = nearest(self.unrouted, [*self.accounts, FAIL, QUARANTINE])
            raise complaint_error(
                f"names no account, found {described(self.unrouted)}",
                remedy=(f"Did you mean {guess}? " if guess else "")
                + f"Use fail, quarantine or one of {', '.join(self.accounts)}.",
                at=("unrouted",),
            )
        return self


class Console(TakesRows):
    """Prints rows for people to look at. Delivers at least once."""

    type: Literal["console"] = Field(default="console", description="`console`: prints rows.")
    rows: int = Field(default=20, ge=0, description="How many rows of each batch to print at most.")
    truncate: int = Field(default=40, ge=0, description="Longest value to print in characters; 0 prints all of it.")


class Memory(TakesRows):
    """Keeps rows in the driver's memory, for tests. They are gone when the process ends."""

    type: Literal["memory"] = Field(default="memory", description="`memory`: keeps rows in the driver.")


@runtime_checkable
class SinkObject(Protocol):
    """A user-written sink as an object, of a class derived from `penstock.OwnSink`."""

    def stager(self) -> Any:
        """Return the object that stages rows."""

    def publish(self, publication: Any, /) -> Any:
        """Publish what was staged."""


def _user_written(value: Any) -> Any:
    if isinstance(value, SinkObject):
        return value
    if not isinstance(value, str):
        raise complaint_error(f"should be a text, found {described(value)}", remedy="Write it like mypkg.sinks:Class.")
    return python_name(value)


UserWritten = Annotated[str | SinkObject | type[SinkObject], PlainValidator(_user_written), PYTHON_SCHEMA]
"""`package.module:Class`; in code also the class itself, or an object of it, which takes no more options."""


class PythonSink(TakesRows):
    """A sink written by the user. All other keys are its options."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="allow")

    python: UserWritten = Field(description="`package.module:Class`; every other key is passed to it as an option.")

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            python: str | SinkObject | type[SinkObject],
            where: str | None = None,
            select: GivenColumns = (),
            exclude: GivenColumns = (),
            **options: Any,
        ) -> None: ...

    @model_validator(mode="after")
    def _remember(self) -> Self:
        remember_options(self.options)
        return self

    @property
    def type(self) -> str:
        """The name of this kind of sink in reports."""
        return "python"

    @property
    def reference(self) -> str:
        """`package.module:Class`, however the sink was given."""
        if isinstance(self.python, str):
            return self.python
        made = self.python if isinstance(self.python, type) else type(self.python)
        return f"{made.__module__}:{made.__qualname__}"

    def shown(self) -> dict[str, Json]:
        """Return the settings as JSON, with the reference in place of an object."""
        return {**super().shown(), "python": self.reference}

    @property
    def options(self) -> Mapping[str, Any]:
        """All other keys with their values."""
        return self.model_extra or {}


SUPPORTED: Final = (
    *("parquet", "delta", "iceberg", "postgres", "mysql", "redshift", "sqlserver", "sqlite"),
    *("duckdb", "cassandra", "dbapi", "kafka", "http", "console", "memory"),
)


def _tag(value: Any) -> str | None:
    if isinstance(value, Settings):
        return str(getattr(value, "type", ""))
    if not isinstance(value, Mapping):
        return "console"
    return "python" if "python" in value and "type" not in value else value.get("type")


def _check_type(value: Any) -> Any:
    if isinstance(value, SinkObject):
        return PythonSink(python=value)
    if not isinstance(value, Mapping) or ("python" in value and "type" not in value):
        return value
    supported = f"This version has the types {', '.join(SUPPORTED)}, and python: package.module:Class."
    if "type" not in value and str(value.get("format")) in SUPPORTED:
        kind = value["format"]
        raise complaint_error("is a key of sources", remedy=f"Write it as type: {kind}, as sinks have it.", at=("format",))
    if "type" not in value:
        raise complaint_error("is missing", remedy=f"Add one: {supported}", at=("type",))
    kind = value["type"]
    if kind not in SUPPORTED:
        guess = nearest(str(kind), SUPPORTED)
        raise complaint_error(
            f"is no type of sink, found {described(kind)}",
            remedy=(f"Did you mean {guess}? " if guess else "") + supported,
            at=("type",),
        )
    return value


Sink = Annotated[
    Annotated[Parquet, Tag("parquet")]
    | Annotated[Delta, Tag("delta")]
    | Annotated[Iceberg, Tag("iceberg")]
    | Annotated[SQLite, Tag("sqlite")]
    | Annotated[DuckDB, Tag("duckdb")]
    | Annotated[PostgreSQL, Tag("postgres")]
    | Annotated[MySQL, Tag("mysql")]
    | Annotated[Redshift, Tag("redshift")]
    | Annotated[SQLServer, Tag("sqlserver")]
    | Annotated[Cassandra, Tag("cassandra")]
    | Annotated[DBAPI, Tag("dbapi")]
    | Annotated[Kafka, Tag("kafka")]
    | Annotated[HTTP, Tag("http")]
    | Annotated[Console, Tag("console")]
    | Annotated[Memory, Tag("memory")]
    | Annotated[PythonSink, Tag("python")],
    Discriminator(_tag),
    BeforeValidator(_check_type),
]
"""Settings of any sink."""

GivenSink: TypeAlias = Sink | SinkObject | type[SinkObject] | Mapping[str, Any]
"""What code may pass as a sink: settings, a sink of its own, or a mapping as in the pipeline file."""
