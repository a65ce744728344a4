"""Settings that all sinks have which fill a table of an open format."""

from pathlib import Path
from typing import ClassVar, Literal, TypeAlias

from pydantic import Field, model_validator
from typing_extensions import Self

from penstock.spec.complaint import complaint_error
from penstock.spec.location import Columns
from penstock.spec.many_tables import FillsManyTables
from penstock.spec.scalar import SchemaChanges, Size
from penstock.spec.selection import Compares
from penstock.spec.source import Options

LakeWrite: TypeAlias = Literal["append", "upsert", "insert_if_absent", "replace", "overwrite_partitions"]
PageCompression: TypeAlias = Literal["zstd", "snappy", "gzip", "lz4", "brotli", "none"]


ExistingRows: TypeAlias = Literal["refuse", "keep"]


class LakeTable(FillsManyTables, Compares):
    """Base of the settings of tables whose files are Parquet, and whose log or catalog lists them."""

    options: Options = Field(default_factory=dict, description="Options of the store, as an account there has them.")
    write: LakeWrite = Field(
        default="append",
        description="`append` rows, `upsert` by key, `insert_if_absent` by key, `replace` the whole content (complete mode), or "
        "`overwrite_partitions`: the partitions that a batch has rows of consist of these rows afterwards.",
    )
    key: Columns = Field(default=(), description="Columns that identify a row; needed by `upsert` and `insert_if_absent`.")
    partition_by: Columns = Field(default=(), description="Columns that the table is partitioned by, each by its value.")
    create: bool = Field(default=True, description="Create the table from the rows' schema if it is missing.")
    existing_rows: ExistingRows = Field(
        default="refuse",
        description="What becomes of a table that holds rows of others before the first batch: `refuse` it, or `keep` them; they "
        "are counted with the first batch, for `verify`.",
    )
    schema_changes: SchemaChanges = "fail"
    compression: PageCompression = Field(default="zstd", description="Compression of the Parquet pages.")
    target_file_size: Size = Field(
        default=128_000_000,
        description="A new file is begun when one has about this size.",
        json_schema_extra={"default": "128MB"},
    )

    longest_name: ClassVar[int] = 100

    @classmethod
    def valid_keys(cls) -> tuple[str, ...]:
        """Return the keys, those of the format before those that all formats share."""
        shared = LakeTable.model_fields
        keys = super().valid_keys()
        return (*(key for key in keys if key not in shared), *(key for key in keys if key in shared))

    @property
    def directory(self) -> Path | None:
        """The table's directory, None if it is in a store."""
        raise NotImplementedError

    @model_validator(mode="after")
    def _options_are_of_a_store(self) -> Self:
        if self.options and self.directory is not None:
            raise complaint_error("are given, but the table is in no store", remedy="Leave them out.", at=("options",))
        return self

    @model_validator(mode="after")
    def _write_has_what_it_needs(self) -> Self:
        if self.write in {"upsert", "insert_if_absent"} and not self.key:
            raise complaint_error(
                f"is missing, but write: {self.write} needs it", remedy="Add key: [columns that identify a row].", at=("key",)
            )
        if self.write == "overwrite_partitions" and not self.partition_by:
            raise complaint_error(
                f"is missing, but write: {self.write} needs it", remedy="Add partition_by: [columns].", at=("partition_by",)
            )
        return self
