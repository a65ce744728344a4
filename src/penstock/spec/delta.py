"""Settings of a sink that fills a Delta table."""

import re
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator
from typing_extensions import Self

from penstock.blob.url import scheme_of
from penstock.spec.complaint import complaint_error
from penstock.spec.location import Columns, GivenColumns
from penstock.spec.place import AccountUrl, local_path
from penstock.spec.scalar import Size
from penstock.spec.settings import Settings
from penstock.spec.source import Options

_LOST_BY_DELTA = re.compile(r"%[0-9A-Fa-f]{2}|[\[\]|^\\\x00-\x1f\x7f]")
"""What the library for Delta finds under another path, or under none."""


def _delta_path(path: str) -> str:
    if scheme_of(path) not in {"file", "s3"}:
        raise complaint_error(
            f"is at {scheme_of(path)}://, where this version writes no Delta tables",
            remedy="Name a directory, or s3://bucket/prefix.",
        )
    lost = _LOST_BY_DELTA.search(path)
    if lost is not None:
        raise complaint_error(
            f"holds {lost[0]!r}, which deltalake does not find in the path of a table",
            remedy="Name a place without %, a hexadecimal number after it, brackets, |, ^ and backslashes.",
        )
    return path


class Delta(Settings):
    """A Delta table in a directory: every batch is one commit of its log, together with what says that it is there."""

    type: Literal["delta"] = Field(default="delta", description="`delta`: a Delta table.")
    path: Annotated[AccountUrl, AfterValidator(_delta_path)] = Field(
        description="The table's directory, relative to the pipeline file, which must be mounted at the same path everywhere; or "
        "`s3://bucket/prefix`."
    )
    options: Options = Field(default_factory=dict, description="Options of the store, as an account there has them.")
    write: Literal["append"] = Field(default="append", description="`append`: rows are added. No other way is supported yet.")
    partition_by: Columns = Field(default=(), description="Columns that the table is partitioned by.")
    create: bool = Field(default=True, description="Create the table from the rows' schema if it is missing.")
    compression: Literal["zstd", "snappy", "gzip", "lz4", "brotli", "none"] = Field(
        default="zstd", description="Compression of the Parquet pages."
    )
    target_file_size: Size = Field(
        default=128_000_000,
        description="A new file is begun when one has about this size.",
        json_schema_extra={"default": "128MB"},
    )

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            path: str | PathLike[str],
            options: Mapping[str, Any] = ...,
            write: Literal["append"] = "append",
            partition_by: GivenColumns = (),
            create: bool = True,
            compression: Literal["zstd", "snappy", "gzip", "lz4", "brotli", "none"] = "zstd",
            target_file_size: int | str = "128MB",
        ) -> None: ...

    @property
    def directory(self) -> Path | None:
        """The table's directory, None if it is in a store."""
        return local_path(self.path)

    @model_validator(mode="after")
    def _options_are_of_a_store(self) -> Self:
        if self.options and self.directory is not None:
            raise complaint_error("are given, but the table is in no store", remedy="Leave them out.", at=("options",))
        return self
