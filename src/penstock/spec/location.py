"""Settings of places with the options of their store: checkpoint, ledger, spool, quarantine, and accounts with their route."""

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from pydantic import BeforeValidator, Field, model_validator
from typing_extensions import Self

from penstock.blob.url import is_blob
from penstock.spec.complaint import complaint_error, described
from penstock.spec.place import AccountUrl, CheckpointUrl, LedgerUrl, SpoolUrl, is_postgres, local_path
from penstock.spec.settings import OneKey, Settings
from penstock.spec.source import Options
from penstock.spec.sql import SQL

FAIL, QUARANTINE = "fail", "quarantine"


def as_tuple(value: Any) -> Any:
    """Return a list of the pipeline file as a tuple, any other value as it is."""
    return tuple(value) if isinstance(value, list) else value


Columns = Annotated[tuple[Annotated[str, Field(min_length=1)], ...], BeforeValidator(as_tuple)]
"""Names of columns."""

GivenColumns: TypeAlias = tuple[str, ...] | list[str]
"""Names of columns as code passes them."""


class StateLocation(Settings):
    """A URL with the options of its store."""

    url: str = Field(description="Where it is.")
    options: Options = Field(default_factory=dict, description="Options of the store, as an account there has them.")

    @model_validator(mode="after")
    def _options_are_of_a_store(self) -> Self:
        unknown = sorted(set(self.options) - {"schema"})
        if is_postgres(self.url) and unknown:
            raise complaint_error(
                f"hold {unknown[0]}, expected schema alone",
                remedy="Write libpq's parameters into the URL: postgresql://…/db?sslmode=verify-full.",
                at=("options",),
            )
        if self.options and not is_postgres(self.url) and not is_blob(self.url):
            raise complaint_error("are given, but the place is in no store", remedy="Leave them out.", at=("options",))
        return self


class Checkpoint(StateLocation):
    """Spark's checkpoint. Spark itself writes it with its own settings; `options` are what Penstock reads it with."""

    url: CheckpointUrl = Field(
        description="A directory, or a URL that Spark writes to and Penstock reads: `s3a://`, `abfss://`, `gs://`, `hdfs://`. "
        "No other URL of Spark."
    )


class LedgerPlace(StateLocation):
    """The ledger: the append-only log of what was decided."""

    url: LedgerUrl = Field(
        description="A SQLite file (`sqlite:///path`), a directory, `postgresql://user:password@host:5432/database` (its only "
        "option is the `schema` of its table, `public` unless said otherwise), `mysql://user:password@host:3306/database`, or "
        "`s3://`, `az://`, `gs://`, `hdfs://`."
    )


class SpoolPlace(StateLocation):
    """The spool: where batches wait for sinks that cannot hold data invisibly."""

    url: SpoolUrl = Field(
        description="A directory, shared with the executors if they are elsewhere, or `s3://`, `az://`, `gs://`, `hdfs://`."
    )


def url_mapping(value: Any) -> Any:
    """Return a URL as the mapping that it is short for."""
    if isinstance(value, Mapping | Settings):
        return value
    if not isinstance(value, str | PathLike):
        raise complaint_error(
            f"should be a URL, found {described(value)}", remedy="Write a URL, or a mapping of url and options."
        )
    return {"url": value}


ShortCheckpoint = Annotated[Checkpoint, BeforeValidator(url_mapping, json_schema_input_type=str | Checkpoint)]
"""A checkpoint, or just its URL."""

ShortLedger = Annotated[LedgerPlace, BeforeValidator(url_mapping, json_schema_input_type=str | LedgerPlace)]
"""A ledger, or just its URL."""

ShortSpool = Annotated[SpoolPlace, BeforeValidator(url_mapping, json_schema_input_type=str | SpoolPlace)]
"""A spool, or just its URL."""


class Account(Settings):
    """One place that the storage writer writes a table to."""

    url: AccountUrl = Field(
        description="Root of the table: `file:///path`, a path relative to the pipeline file, or `s3://`, `az://`, `gs://`, `hdfs://`."
    )
    options: Options = Field(default_factory=dict, description="Options of the store, such as a region.")

    if TYPE_CHECKING:

        def __init__(self, *, url: str | PathLike[str], options: Mapping[str, Any] = ...) -> None: ...

    @property
    def directory(self) -> Path | None:
        """The account's root on this machine, None if it is in a store."""
        return local_path(self.url)


ShortAccount = Annotated[Account, BeforeValidator(url_mapping, json_schema_input_type=str | Account)]
"""An account, or just its URL."""


class Route(OneKey):
    """How a row finds its account. Exactly one of the keys."""

    column: str | None = Field(default=None, min_length=1, description="The column that holds the account's name.")
    hash: Columns | None = Field(default=None, description="Spread rows evenly over the accounts by a hash of these columns.")
    sql: SQL | None = Field(default=None, description="A Spark SQL expression that yields the account's name.")

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            column: str | None = None,
            hash: GivenColumns | None = None,  # noqa: A002 - the key's name
            sql: str | None = None,
        ) -> None: ...

    @model_validator(mode="after")
    def _hash_has_columns(self) -> Self:
        if self.hash is not None and not self.hash:
            raise complaint_error("should name at least one column", remedy="Write hash: [column].", at=("hash",))
        return self


class Quarantine(Account):
    """Where records go that are put aside: Parquet files, committed with the batch that they came with."""

    max_rows: int = Field(
        default=10_000,
        ge=1,
        description="More such records in one batch fail it: then more is wrong than some records.",
    )
    max_rows_per_hour: int = Field(
        default=100_000,
        ge=1,
        description="As `max_rows`, in the batches that were decided within the last hour and this one together.",
    )
    max_share: float = Field(
        default=1.0,
        gt=0,
        le=1,
        strict=False,
        description="As `max_rows`, as a share of what the batch reads of the sources whose records or rows are put aside "
        "(offsets of those that decode), and of the rows that the sinks were to get.",
    )

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            url: "str | PathLike[str]",
            options: Mapping[str, Any] = ...,
            max_rows: int = 10_000,
            max_rows_per_hour: int = 100_000,
            max_share: float = 1.0,
        ) -> None: ...


ShortQuarantine = Annotated[Quarantine, BeforeValidator(url_mapping, json_schema_input_type=str | Quarantine)]
"""A quarantine, or just its URL."""
