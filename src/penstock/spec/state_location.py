"""Settings of where a pipeline has its checkpoint, ledger and spool, with the options of their store."""

from collections.abc import Mapping
from os import PathLike
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, model_validator
from typing_extensions import Self

from penstock.blob.url import is_blob
from penstock.spec.complaint import complaint_error, described
from penstock.spec.place import CheckpointUrl, LedgerUrl, SpoolUrl, is_postgres
from penstock.spec.settings import Settings
from penstock.spec.source import Option
from penstock.support.secret import remember_options


class StateLocation(Settings):
    """A URL with the options of its store."""

    url: str = Field(description="Where it is.")
    options: Mapping[str, Option] = Field(default_factory=dict, description="Options of the store, as an account there has them.")

    @model_validator(mode="after")
    def _options_are_of_a_store(self) -> Self:
        remember_options(self.options)
        if self.options and is_postgres(self.url):
            _require_schema_alone(self.options)
        elif self.options and not is_blob(self.url):
            raise complaint_error("are given, but the place is in no store", remedy="Leave them out.", at=("options",))
        return self


def _require_schema_alone(options: Mapping[str, str]) -> None:
    unknown = sorted(set(options) - {"schema"})
    if unknown:
        raise complaint_error(
            f"hold {unknown[0]}, expected schema alone",
            remedy="Write libpq's parameters into the URL: postgresql://…/db?sslmode=verify-full.",
            at=("options",),
        )


class Checkpoint(StateLocation):
    """Spark's checkpoint. Spark itself writes it with its own settings; `options` are what Penstock reads it with."""

    url: CheckpointUrl = Field(
        description="A directory, or a URL that Spark writes to: `s3a://`, `abfss://`, `gs://`, `hdfs://`."
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
