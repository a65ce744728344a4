"""An Iceberg table for the suite: read by the library's own scan, and changed as other writers of Iceberg do."""

import io
import json
import re
import shutil
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlparse

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, NoSuchNamespaceError, NoSuchTableError, ValidationException
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import Table
from tests.conformance.lake_rig import (
    RETENTION_MS,
    Changing,
    Cleaned,
    Deleting,
    IfAbsent,
    LakeRig,
    Maintained,
    Newest,
    Overlapping,
    OverlappingIfAbsent,
    OverlappingPartitioned,
    Overwrite,
    PartitionedUpsert,
    Replace,
    Versions,
    copy_account,
)
from tests.conformance.object_rig import swapped_in
from tests.servers import duckdb_readers
from tests.servers.fixtures import accounts_on, server, unique

from penstock.sink.iceberg.catalog import CatalogAddress
from penstock.sink.iceberg.expiry import Expiry
from penstock.sink.iceberg.log import IcebergTable
from penstock.sink.iceberg.place import TablePlace, place_of
from penstock.sink.parquet.directory import DirectoryAccount
from penstock.sink.parquet.object import ObjectAccount
from penstock.sink.table.history import COLUMNS
from penstock.testing.conformance import PIPELINE, SWAPPED, Row

CONFLICTS = (CommitFailedException, ValidationException)
_TRIES = 20
NAME = "shop.orders"
MARKER = f"penstock.{PIPELINE}:lake"
"""The property that is the marker."""


class IcebergRig(LakeRig):
    """One table in a directory, in a catalog that is a SQLite file."""

    name = NAME
    branch = "main"

    @property
    def warehouse(self) -> Path:
        return self.directory / "ware é"

    @property
    def root(self) -> Path:
        return self.warehouse / "shop" / "orders"

    @property
    def catalog_uri(self) -> str:
        return f"sqlite:///{self.directory}/catalog.db"

    def log(self) -> IcebergTable:
        return IcebergTable(catalog=self.address(), name=self.name, place=self.place())

    def cleaner(self, log: IcebergTable) -> Expiry:
        return Expiry(log=log, after_ms=RETENTION_MS, retain_last=1, now_ms=self.now_ms)

    def address(self) -> CatalogAddress:
        return CatalogAddress(url=self.catalog_uri)

    def place(self) -> TablePlace:
        return place_of(f"file://{self.root}", {})

    def account(self) -> DirectoryAccount | ObjectAccount:
        return self.place().account

    def catalog(self) -> Catalog:
        return SqlCatalog("default", uri=self.catalog_uri, warehouse=f"file://{self.warehouse}")

    def table(self) -> Table:
        return self.catalog().load_table(self.name)

    def read_back(self) -> Iterator[Row]:
        try:
            return iter(self.table().scan().to_arrow().to_pylist())
        except (NoSuchTableError, NoSuchNamespaceError):
            return iter(())

    def active(self) -> list[DataFile]:
        return [task.file for task in self.table().scan().plan_files()]

    def copy(self, directory: Path) -> None:
        shutil.copytree(self.root, directory)

    def rows_of_copy(self, copy: Path) -> "pa.Table":
        return duckdb_readers.iceberg_rows(copy, Path(urlparse(self.table().metadata_location).path).name)

    def leftovers(self) -> list[str]:
        """Everything below the staging directory but its identity and the table's owner; and files that the table lacks."""
        found = [str(path) for path in (self.root / ".penstock-staging").rglob("*") if path.is_file()]
        known = {local(file).name for file in self.active()}
        stray = [str(path) for path in (self.root / "data").glob("*.parquet") if path.name not in known]
        return [name for name in found if not re.search(r"\.id$|\.owner\.json$", name)] + stray

    # --- what somebody else does to the table

    def damage(self, kind: str) -> None:
        victim = next(file for file in self.active() if kind != "swapped" or SWAPPED in self.rows_of(file)["id"].to_pylist())
        if kind == "lost":
            self.change(removed=victim)
            return
        rows = self.rows_of(victim)
        if kind == "foreign":
            rows = replaced(rows.slice(0, 1), "id", -5)
        elif kind == "swapped":
            rows = swapped_in(rows)
        elif kind == "changed":
            rows = replaced(rows, "number", 7)
        self.change(added=(rows, victim), removed=victim if kind in {"swapped", "changed"} else None)

    def renumber(self, column: str) -> str:
        """Remove a column and add it again, which gives it another number; the location of the metadata from before that."""
        before, kind = self.table().metadata_location, self.table().schema().find_type(column)
        with self.table().update_schema(allow_incompatible_changes=True) as update:
            update.delete_column(column)
        with self.table().update_schema() as update:
            update.add_column(column, kind)
        return before

    def register(self, metadata_location: str) -> None:
        """Put the table back as it was with that metadata."""
        catalog = self.catalog()
        catalog.drop_table(self.name)
        catalog.register_table(self.name, metadata_location)

    def repeat(self, number: int) -> None:
        """Add a row of the table once more."""
        table = self.table()
        table.append(table.scan().to_arrow().slice(number, 1), branch=self.branch)

    def list_again(self) -> None:
        transaction = self.table().transaction()
        with transaction.update_snapshot(branch=self.branch).fast_append() as append:
            append.append_data_file(self.active()[0])
        transaction.commit_transaction()

    def compact(self) -> None:
        table = self.table()
        table.overwrite(table.scan().to_arrow(), branch=self.branch)

    def mark(self, position: int) -> None:
        noted = {**json.loads(self.table().properties[MARKER]), "position": position}
        with self.table().transaction() as transaction:
            transaction.set_properties({MARKER: json.dumps(noted)})

    def ids(self, path: str) -> list[int]:
        [file] = [file for file in self.active() if local(file).name == path]
        found: list[int] = self.rows_of(file)["id"].to_pylist()
        return found

    def change(self, *, added: "tuple[pa.Table, DataFile] | None" = None, removed: DataFile | None = None) -> None:
        """Commit it, again as long as a driver commits meanwhile."""
        entry = None if added is None else self.written(*added)
        for left in reversed(range(_TRIES)):
            transaction = self.table().transaction()
            with suppress(*(CONFLICTS if left else ())):
                with transaction.update_snapshot(branch=self.branch).overwrite() as overwrite:
                    if removed is not None:
                        overwrite.delete_data_file(removed)
                    if entry is not None:
                        overwrite.append_data_file(entry)
                transaction.commit_transaction()
                return

    def written(self, rows: "pa.Table", like: DataFile) -> DataFile:
        numbered = schema_to_pyarrow(self.table().schema())
        schema = pa.schema([field.with_metadata(numbered.field(field.name).metadata) for field in rows.schema])
        with pa.BufferOutputStream() as stream:
            pq.write_table(pa.Table.from_arrays(rows.columns, schema=schema), stream)
            data = stream.getvalue().to_pybytes()
        entry = DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=self.put(f"other-{uuid.uuid4().hex}.parquet", data),
            file_format=FileFormat.PARQUET,
            partition=like.partition,
            record_count=len(rows),
            file_size_in_bytes=len(data),
            column_sizes={},
            value_counts={},
            null_value_counts={},
            nan_value_counts={},
            lower_bounds={},
            upper_bounds={},
        )
        entry.spec_id = like.spec_id
        return entry

    def get(self, file: DataFile) -> bytes:
        return local(file).read_bytes()

    def put(self, name: str, data: bytes) -> str:
        """Write a data file; its location."""
        path = self.root / "data" / name
        path.write_bytes(data)
        return f"file://{path}"

    def rows_of(self, file: DataFile) -> "pa.Table":
        return pq.ParquetFile(io.BytesIO(self.get(file))).read()

    def had(self) -> set[str]:
        table = self.table()
        manifests = (manifest for snapshot in table.snapshots() for manifest in snapshot.manifests(table.io))
        entries = (entry for each in manifests for entry in each.fetch_manifest_entry(table.io, discard_deleted=False))
        return {local(entry.data_file).name for entry in entries}


def expired(rig: IcebergRig) -> int:
    """Expire all snapshots but the newest one; how many that were."""
    table = rig.table()
    newest = table.current_snapshot()
    old = [one.snapshot_id for one in table.snapshots() if newest is None or one.snapshot_id != newest.snapshot_id]
    if old:
        table.maintenance.expire_snapshots().by_ids(old).commit()
    return len(old)


def local(file: DataFile) -> Path:
    return Path(urlparse(file.file_path).path)


def replaced(rows: "pa.Table", column: str, value: int) -> "pa.Table":
    at = rows.schema.get_field_index(column)
    return rows.set_column(at, rows.schema.field(at), pa.array([value] * len(rows), rows.schema.field(at).type))


class PartitionedRig(IcebergRig):
    """By a hostile text and a flag."""

    partition_by = ("place", "flag")


class ChangingRig(Changing, IcebergRig):
    pass


class IfAbsentRig(IfAbsent, IcebergRig):
    pass


class PartitionedUpsertRig(PartitionedUpsert, IcebergRig):
    pass


class OverlappingRig(Overlapping, IcebergRig):
    pass


class OverlappingPartitionedRig(OverlappingPartitioned, IcebergRig):
    pass


class OverlappingIfAbsentRig(OverlappingIfAbsent, IcebergRig):
    pass


class NewestRig(Newest, IcebergRig):
    pass


class HistoryRig(Versions, IcebergRig):
    def read_back(self) -> Iterator[Row]:
        """The rows without the columns of the history."""
        return ({name: value for name, value in row.items() if name not in COLUMNS} for row in super().read_back())


class DeleteRig(Deleting, IcebergRig):
    pass


class ReplaceRig(Replace, IcebergRig):
    pass


class OverwriteRig(Overwrite, IcebergRig):
    pass


class MaintainedRig(Maintained, IcebergRig):
    pass


class MaintainedOverlappingRig(Maintained, Overlapping, IcebergRig):
    pass


class CleanedRig(Cleaned, IcebergRig):
    partition_by = ("flag",)


class CleanedOverlappingRig(Cleaned, Overlapping, IcebergRig):
    pass


class CleanedChangingRig(Cleaned, Changing, IcebergRig):
    pass


class CleanedReplaceRig(Cleaned, Replace, IcebergRig):
    pass


class StoreRig(IcebergRig):
    """One table in a bucket of S3, read by the library's own client of it."""

    kind = "s3"

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        [(self.where, self.outside)] = accounts_on(iceberg=self.kind).values()

    def place(self) -> TablePlace:
        return place_of(self.where.url, self.where.options)

    def catalog(self) -> Catalog:
        options = self.where.options
        names = {"s3.endpoint": "endpoint", "s3.region": "region"}
        names |= {"s3.access-key-id": "access_key_id", "s3.secret-access-key": "secret_access_key"}
        return SqlCatalog("default", uri=self.catalog_uri, **{name: options[option] for name, option in names.items()})

    def copy(self, directory: Path) -> None:
        copy_account(self.outside, directory)

    def get(self, file: DataFile) -> bytes:
        return self.outside.get(file.file_path.removeprefix(f"{self.place().location}/"))

    def put(self, name: str, data: bytes) -> str:
        self.outside.put(f"data/{name}", data)
        return f"{self.place().location}/data/{name}"

    def leftovers(self) -> list[str]:
        known = {local(file).name for file in self.active()}
        listed = {Path(key).name for key in self.outside.listing() if key.startswith("data/") and key.endswith(".parquet")}
        return sorted(self.outside.uploads()) + sorted(listed - known)


class OverlappingStoreRig(Overlapping, StoreRig):
    """Rows are replaced in a table in a bucket; they are staged in a spool."""


class CleanedStoreRig(Cleaned, StoreRig):
    """In a bucket, to which compactions upload files, too."""


class AzureRig(StoreRig):
    """One table in a container of Azure, whose files are read by Azure's own client."""

    kind = "az"

    def catalog(self) -> Catalog:
        return SqlCatalog("default", uri=self.catalog_uri, **self.place().io())

    def read_back(self) -> Iterator[Row]:
        try:
            files = self.active()
        except (NoSuchTableError, NoSuchNamespaceError):
            return iter(())
        return (row for file in files for row in self.rows_of(file).to_pylist())


class RestRig(IcebergRig):
    """One table in a directory, in a catalog behind the REST API."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.url = server("iceberg").url
        self.name = f"{unique('shop')}.orders"

    def address(self) -> CatalogAddress:
        return CatalogAddress(url=self.url)

    def catalog(self) -> Catalog:
        return RestCatalog("default", uri=self.url)


class OverlappingRestRig(Overlapping, RestRig):
    pass
