"""Settings of the storage writer's accounts, and of the route that sends rows to them."""

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from pydantic import BeforeValidator, Field, model_validator
from typing_extensions import Self

from penstock.spec.complaint import complaint_error
from penstock.spec.place import AccountUrl, local_path
from penstock.spec.settings import OneKey, Settings
from penstock.spec.source import Option
from penstock.spec.state_location import url_mapping
from penstock.support.secret import remember_options

FAIL = "fail"
QUARANTINE = "quarantine"


class Account(Settings):
    """One place that the storage writer writes a table to."""

    url: AccountUrl = Field(
        description="Root of the table: `file:///path`, a path relative to the pipeline file, or `s3://`, `az://`, `gs://`, `hdfs://`."
    )
    options: Mapping[str, Option] = Field(default_factory=dict, description="Options of the store, such as a region.")

    if TYPE_CHECKING:

        def __init__(self, *, url: str | PathLike[str], options: Mapping[str, Any] = ...) -> None: ...

    @model_validator(mode="after")
    def _remember(self) -> Self:
        remember_options(self.options)
        return self

    @property
    def directory(self) -> Path | None:
        """The account's root on this machine, None if it is in a store."""
        return local_path(self.url)


def as_tuple(value: Any) -> Any:
    """Return a list of the pipeline file as a tuple, any other value as it is."""
    return tuple(value) if isinstance(value, list) else value


ShortAccount = Annotated[Account, BeforeValidator(url_mapping, json_schema_input_type=str | Account)]
"""An account, or just its URL."""

Columns = Annotated[tuple[Annotated[str, Field(min_length=1)], ...], BeforeValidator(as_tuple)]
"""Names of columns."""

GivenColumns: TypeAlias = tuple[str, ...] | list[str]
"""Names of columns as code passes them."""


class Route(OneKey):
    """How a row finds its account. Exactly one of the keys."""

    column: str | None = Field(default=None, min_length=1, description="The column that holds the account's name.")
    hash: Columns | None = Field(default=None, description="Spread rows evenly over the accounts by a hash of these columns.")
    sql: str | None = Field(default=None, min_length=1, description="A Spark SQL expression that yields the account's name.")

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
    """Where records go that cannot be decoded: Parquet files, committed with the batch that they came with."""

    max_rows: int = Field(
        default=10_000,
        ge=1,
        description="More such records in one batch fail it: then more is wrong than some records.",
    )
    max_share: float = Field(
        default=1.0,
        gt=0,
        le=1,
        strict=False,
        description="As `max_rows`, as a share of the offsets that the batch reads of the sources that decode.",
    )

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            url: "str | PathLike[str]",
            options: Mapping[str, Any] = ...,
            max_rows: int = 10_000,
            max_share: float = 1.0,
        ) -> None: ...


ShortQuarantine = Annotated[Quarantine, BeforeValidator(url_mapping, json_schema_input_type=str | Quarantine)]
"""A quarantine, or just its URL."""
