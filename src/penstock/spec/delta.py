"""Settings of a sink that fills a Delta table."""

import re
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field

from penstock.blob.url import scheme_of
from penstock.spec.complaint import complaint_error
from penstock.spec.lake import ExistingRows, LakeTable, LakeWrite, PageCompression
from penstock.spec.location import GivenColumns
from penstock.spec.maintenance import DeltaMaintenance
from penstock.spec.many_tables import Tables, Unrouted
from penstock.spec.place import AccountUrl, local_path
from penstock.spec.scalar import SchemaChanges

_LOST_BY_DELTA = re.compile(r"%[0-9A-Fa-f]{2}|[\[\]|^\\\x00-\x1f\x7f]")
"""What the library for Delta finds under another path, or under none."""


def _delta_path(path: str) -> str:
    if scheme_of(path) not in {"file", "s3", "az", "gs"}:
        raise complaint_error(
            f"is at {scheme_of(path)}://, where this version writes no Delta tables",
            remedy="Name a directory, s3://bucket/prefix, az://container@account/prefix or gs://bucket/prefix.",
        )
    lost = _LOST_BY_DELTA.search(path)
    if lost is not None:
        raise complaint_error(
            f"holds {lost[0]!r}, which deltalake does not find in the path of a table",
            remedy="Name a place without %, a hexadecimal number after it, brackets, |, ^ and backslashes.",
        )
    return path


class Delta(LakeTable):
    """A Delta table in a directory: every batch is one commit of its log, together with what says that it is there."""

    template_key: ClassVar[str] = "path"
    type: Literal["delta"] = Field(default="delta", description="`delta`: a Delta table.")
    path: Annotated[AccountUrl, AfterValidator(_delta_path)] = Field(
        description="The table's directory, relative to the pipeline file, which must be mounted at the same path everywhere; or "
        "`s3://bucket/prefix`, `az://container@account/prefix`, `gs://bucket/prefix`."
    )
    maintenance: DeltaMaintenance | None = Field(
        default=None,
        description="What Penstock does in the table beside its deliveries: `{compact: true, vacuum_after: 7d}`. Without it, "
        "nothing.",
    )

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            path: str | PathLike[str],
            tables: "Tables | Mapping[str, Any] | GivenColumns | None" = None,
            unrouted: Unrouted = "fail",
            maintenance: "DeltaMaintenance | Mapping[str, Any] | None" = None,
            options: Mapping[str, Any] = ...,
            write: LakeWrite = "append",
            key: GivenColumns = (),
            partition_by: GivenColumns = (),
            delete_when: str | None = None,
            sequence_by: str | None = None,
            update_when: str | None = None,
            history: bool = False,
            create: bool = True,
            existing_rows: ExistingRows = "refuse",
            schema_changes: SchemaChanges = "fail",
            compression: PageCompression = "zstd",
            target_file_size: int | str = "128MB",
            where: str | None = None,
            select: GivenColumns = (),
            exclude: GivenColumns = (),
        ) -> None: ...

    @property
    def directory(self) -> Path | None:
        """The table's directory, None if it is in a store."""
        return local_path(self.path)
