"""Settings of a sink that fills an Iceberg table."""

import re
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field, model_validator
from typing_extensions import Self

from penstock.blob.url import scheme_of
from penstock.core.partition_term import looks_like_term, parse_term
from penstock.core.table_names import without_columns
from penstock.errors import Usage
from penstock.spec.complaint import complaint_error
from penstock.spec.lake import ExistingRows, LakeTable, LakeWrite, PageCompression
from penstock.spec.location import Columns, GivenColumns
from penstock.spec.maintenance import IcebergMaintenance
from penstock.spec.many_tables import Tables, Unrouted
from penstock.spec.place import AccountUrl, CatalogUrl, local_path
from penstock.spec.scalar import SchemaChanges
from penstock.spec.source import Options

_OF_SERVERS = ("token", "credential", "oauth2-server-uri", "scope", "audience", "resource", "warehouse", "prefix")
_NAME = re.compile(r"\w+(?:\.\w+)+", re.ASCII)
_BRANCH = re.compile(r"\w[\w.-]*", re.ASCII)
_LOST_IN_URL = re.compile(r"[?#\x00-\x1f\x7f]|;[^/]*$")
"""What ends the path of a URL for readers of Iceberg."""


def _table_name(name: str) -> str:
    if not _NAME.fullmatch(without_columns(name)):
        raise complaint_error(
            f"should be a namespace and a name of letters, digits and underscores, found {name!r}",
            remedy="Write shop.orders, say.",
        )
    return name


def _warehouse(path: str) -> str:
    if scheme_of(path) not in {"file", "s3", "az"}:
        raise complaint_error(
            f"is at {scheme_of(path)}://, where this version writes no Iceberg tables",
            remedy="Name a directory, s3://bucket/prefix or az://container@account/prefix.",
        )
    lost = _LOST_IN_URL.search(path)
    if lost is not None:
        raise complaint_error(
            f"holds {lost[0]!r}, which ends the path of a table for its readers", remedy="Name a place without it."
        )
    return path


def _branch(name: str) -> str:
    if not _BRANCH.fullmatch(name):
        raise complaint_error(
            f"should be a name of letters, digits, dots, dashes and underscores, found {name!r}", remedy="Write audit, say."
        )
    return name


def _partitions(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names with every term in its one spelling."""
    return tuple(map(_partition, names))


def _partition(name: str) -> str:
    try:
        return str(parse_term(name)) if looks_like_term(name) else name
    except Usage as wrong:
        raise complaint_error(wrong.message.removeprefix("partition_by ").rstrip("."), remedy=wrong.remedy) from None


class Iceberg(LakeTable):
    """A table of an Iceberg catalog: every batch is one commit, together with what says that it is there."""

    name_letters: ClassVar[str] = "A-Za-z0-9_"
    type: Literal["iceberg"] = Field(default="iceberg", description="`iceberg`: a table of an Iceberg catalog.")
    catalog: CatalogUrl = Field(
        description="The catalog: a database, `sqlite:///path`, relative to the pipeline file, or "
        "`postgresql://user:password@host:5432/database`; or `https://host/path` of a server of Iceberg's REST API."
    )
    catalog_name: str = Field(
        default="default", min_length=1, max_length=255, description="The name under which the database keeps the catalog."
    )
    catalog_options: Options = Field(
        default_factory=dict,
        description="What a REST server asks for: `token`; or `credential` (`id:secret`) with `oauth2-server-uri`, `scope`, "
        "`audience` and `resource`; `warehouse` and `prefix`.",
    )
    table: Annotated[str, AfterValidator(_table_name)] = Field(description="The table with its namespace: `shop.orders`.")
    warehouse: Annotated[AccountUrl, AfterValidator(_warehouse)] = Field(
        description="A directory, relative to the pipeline file, which must be mounted at the same path everywhere; or the URL "
        "of a store, as an account has it. The table is at `<warehouse>/<namespace>/<name>` in it."
    )
    branch: Annotated[str, AfterValidator(_branch)] = Field(
        default="main",
        description="The branch of the table that is written, for write-audit-publish. "
        "Another one than `main` begins where `main` is, and `main` stays as it is.",
    )
    partition_by: Annotated[Columns, AfterValidator(_partitions)] = Field(
        default=(),
        description="What the table is partitioned by: columns, each by its value, and `years(column)`, `months(column)`, "
        "`days(column)`, `hours(column)`, `bucket(16, column)` and `truncate(4, column)`.",
    )
    maintenance: IcebergMaintenance | None = Field(
        default=None,
        description="What Penstock does in the table beside its deliveries: `{compact: true, expire_snapshots_after: 5d}`. "
        "Without it, nothing.",
    )

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            catalog: str,
            catalog_name: str = "default",
            catalog_options: Mapping[str, Any] = ...,
            table: str,
            tables: "Tables | Mapping[str, Any] | GivenColumns | None" = None,
            unrouted: Unrouted = "fail",
            warehouse: str | PathLike[str],
            branch: str = "main",
            maintenance: "IcebergMaintenance | Mapping[str, Any] | None" = None,
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

    @model_validator(mode="after")
    def _options_are_of_a_server(self) -> Self:
        if self.catalog_options and scheme_of(self.catalog) not in {"https", "http"}:
            raise complaint_error("are given, but the catalog is a database", remedy="Leave them out.", at=("catalog_options",))
        unknown = next((name for name in self.catalog_options if name not in _OF_SERVERS), None)
        if unknown is not None:
            raise complaint_error(
                "is not a known option", remedy=f"The options are {', '.join(_OF_SERVERS)}.", at=("catalog_options", unknown)
            )
        return self

    @model_validator(mode="after")
    def _expires_no_other_branch(self) -> Self:
        if self.branch != "main" and self.maintenance is not None and self.maintenance.expire_snapshots_after is not None:
            raise complaint_error(
                f"is given, but branch is {self.branch}: snapshots of main would leave",
                remedy="Leave it out, and let what writes main expire snapshots.",
                at=("maintenance", "expire_snapshots_after"),
            )
        return self

    @property
    def directory(self) -> Path | None:
        """The table's directory, None if it is in a store."""
        return local_path(self.url)

    @property
    def url(self) -> str:
        """The table's directory as a URL, or its place in a store."""
        return "/".join((self.warehouse, *self.table.split(".")))
