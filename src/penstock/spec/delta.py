"""Settings of a sink that fills a Delta table."""

import re
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import AfterValidator, Field

from penstock.spec.complaint import complaint_error
from penstock.spec.location import Columns, GivenColumns
from penstock.spec.place import Directory
from penstock.spec.scalar import Size
from penstock.spec.settings import Settings

_LOST_BY_DELTA = re.compile(r"%[0-9A-Fa-f]{2}|[\[\]|^\\\x00-\x1f\x7f]")
"""What the library for Delta finds under another path, or under none."""


def _delta_path(path: str) -> str:
    lost = _LOST_BY_DELTA.search(path)
    if lost is not None:
        raise complaint_error(
            f"holds {lost[0]!r}, which deltalake does not find in the path of a directory",
            remedy="Name a directory without %, a hexadecimal number after it, brackets, |, ^ and backslashes.",
        )
    return path


class Delta(Settings):
    """A Delta table in a directory: every batch is one commit of its log, together with what says that it is there."""

    type: Literal["delta"] = Field(default="delta", description="`delta`: a Delta table.")
    path: Annotated[Directory, AfterValidator(_delta_path)] = Field(
        description="The table's directory, relative to the pipeline file; on other machines it must be mounted at the same path."
    )
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
            write: Literal["append"] = "append",
            partition_by: GivenColumns = (),
            create: bool = True,
            compression: Literal["zstd", "snappy", "gzip", "lz4", "brotli", "none"] = "zstd",
            target_file_size: int | str = "128MB",
        ) -> None: ...

    @property
    def directory(self) -> Path:
        """The table's directory."""
        return Path(self.path)
