"""A Delta table for the suite: read by the library's own engine, and changed as other writers of Delta do."""

import io
import json
import os
import re
import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction
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
from tests.servers.az import ACCOUNT
from tests.servers.fixtures import accounts_on, server, unique
from tests.servers.server import Outside, Place

from penstock.core.model import SinkName
from penstock.sink.delta.log import DeltaLog, delta_log
from penstock.sink.delta.vacuum import Vacuum
from penstock.sink.lake.sink import LakeSink
from penstock.sink.parquet import directory_account, object_account
from penstock.sink.parquet.directory import DirectoryAccount
from penstock.sink.parquet.object import ObjectAccount
from penstock.sink.parquet.splitting import INLINE_LIMIT_BYTES
from penstock.sink.table.history import COLUMNS
from penstock.testing.conformance import SWAPPED, Row
from penstock.testing.conformance.rig import PIPELINE


def sink_into(account: DirectoryAccount | ObjectAccount, *, name: str = "lake", **settings: Any) -> LakeSink:
    """A sink of the Delta table in `account`, which has no spool."""
    return LakeSink(name=SinkName(name), pipeline=PIPELINE, account=account, log=delta_log(account), **settings)


class DeltaRig(LakeRig):
    """One table in a directory, read by the library's own engine."""

    storage_options: Mapping[str, str] | None = None

    @property
    def root(self) -> Path:
        return self.directory / "lake" / "orders é"

    @property
    def uri(self) -> str:
        return str(self.root)

    def account(self) -> DirectoryAccount | ObjectAccount:
        return directory_account(self.root)

    def log(self) -> DeltaLog:
        return delta_log(self.account())

    def cleaner(self, log: DeltaLog) -> Vacuum:
        return Vacuum(log=log, after_ms=RETENTION_MS, now_ms=self.now_ms)

    def table(self) -> DeltaTable:
        return DeltaTable(self.uri, storage_options=self.storage_options)

    def read_back(self) -> Iterator[Row]:
        try:
            return iter(pa.table(self.table().scan()).to_pylist())
        except TableNotFoundError:
            return iter(())

    def leftovers(self) -> list[str]:
        """Everything below the staging directory but its identity and the table's owner; and files that no version has."""
        staging = self.directory / "lake" / ".penstock-staging"
        found = [str(path) for path in staging.rglob("*") if path.is_file()]
        known = {Path(uri).name for uri in self.table().file_uris()}
        stray = [str(path) for path in self.root.glob("*.parquet") if path.name not in known]
        return [name for name in found if not re.search(r"\.id$|\.owner\.json$", name)] + stray

    def copy(self, directory: Path) -> None:
        shutil.copytree(self.root, directory)

    def rows_of_copy(self, copy: Path) -> "pa.Table":
        return duckdb_readers.delta_rows(copy)

    def get(self, path: str) -> bytes:
        return (self.root / path).read_bytes()

    def put(self, path: str, data: bytes) -> None:
        (self.root / path).write_bytes(data)

    # --- what somebody else does to the table

    def active(self) -> list[tuple[str, dict[str, str | None]]]:
        table = self.table()
        columns = table.metadata().partition_columns
        found = pa.table(table.get_add_actions(flatten=True)).to_pylist()
        return [(row["path"], {name: _text(row[f"partition.{name}"]) for name in columns}) for row in found]

    def damage(self, kind: str) -> None:
        path, values = next(one for one in self.active() if kind != "swapped" or SWAPPED in self.ids(one[0]))
        if kind == "lost":
            self.change(removed=(path, values))
            return
        rows = self.rows_of(path)
        if kind == "foreign":
            rows = rows.slice(0, 1).set_column(0, "id", pa.array([-5], pa.int64()))
        elif kind == "swapped":
            rows = swapped_in(rows)
        elif kind == "changed":
            column = rows.schema.get_field_index("number")
            rows = rows.set_column(column, "number", pa.array([7] * len(rows), pa.int64()))
        with pa.BufferOutputStream() as written:
            pq.write_table(rows, written)
            self.put(f"{kind}.parquet", written.getvalue().to_pybytes())
        self.change(added=(f"{kind}.parquet", values), removed=(path, values) if kind in {"swapped", "changed"} else None)

    def list_again(self) -> None:
        path, values = self.active()[0]
        (self.root / "again").mkdir()
        self.put(f"again/{path}", self.get(path))
        self.change(added=(f"again/{path}", values))

    def compact(self) -> None:
        self.table().optimize.compact()

    def mark(self, position: int) -> None:
        table = self.table()
        marker = CommitProperties(app_transactions=[Transaction(f"penstock:{PIPELINE}:lake", position)])
        table.create_write_transaction([], "append", table.schema(), commit_properties=marker)

    def rows_of(self, path: str) -> "pa.Table":
        return pq.ParquetFile(io.BytesIO(self.get(path))).read()

    def ids(self, path: str) -> list[int]:
        found: list[int] = self.rows_of(path)["id"].to_pylist()
        return found

    def repeat(self, number: int) -> None:
        """Add a row of the table once more."""
        table = self.table()
        write_deltalake(table, pa.table(table.scan()).slice(number, 1), mode="append")

    def change(self, *, added=None, removed=None) -> None:
        table = self.table()
        now_ms = int(time.time() * 1000)
        actions: list[object] = []
        if added is not None:
            path, values = added
            statistics = json.dumps({"numRecords": len(self.rows_of(path))})
            actions.append(AddAction(path, len(self.get(path)), values, now_ms, data_change=True, stats=statistics))
        if removed is not None:
            path, values = removed
            size_bytes = len(self.get(path))
            actions.append(
                RemoveAction(path, data_change=True, deletion_timestamp=now_ms, size=size_bytes, partition_values=values)
            )
        table.create_write_transaction(actions, "append", table.schema(), partition_by=table.metadata().partition_columns)

    def had(self) -> set[str]:
        return {name for _, names in self.added() for name in names}

    def added(self) -> Iterator[tuple[int, list[str]]]:
        """The files that each version added."""
        for path in sorted((self.root / "_delta_log").glob("*.json")):
            actions = [json.loads(line) for line in path.read_text().splitlines()]
            yield int(path.stem), [Path(action["add"]["path"]).name for action in actions if "add" in action]


def _text(value: object) -> str | None:
    return None if value is None else str(value).lower() if isinstance(value, bool) else str(value)


class ChangingRig(Changing, DeltaRig):
    pass


class IfAbsentRig(IfAbsent, DeltaRig):
    pass


class PartitionedUpsertRig(PartitionedUpsert, DeltaRig):
    pass


class OverlappingRig(Overlapping, DeltaRig):
    pass


class OverlappingPartitionedRig(OverlappingPartitioned, DeltaRig):
    pass


class OverlappingIfAbsentRig(OverlappingIfAbsent, DeltaRig):
    pass


class NewestRig(Newest, DeltaRig):
    pass


class HistoryRig(Versions, DeltaRig):
    def read_back(self) -> Iterator[Row]:
        """The rows without the columns of the history."""
        return ({name: value for name, value in row.items() if name not in COLUMNS} for row in super().read_back())


class DeleteRig(Deleting, DeltaRig):
    pass


class ReplaceRig(Replace, DeltaRig):
    pass


class OverwriteRig(Overwrite, DeltaRig):
    pass


class MaintainedRig(Maintained, DeltaRig):
    pass


class MaintainedOverlappingRig(Maintained, Overlapping, DeltaRig):
    pass


class CleanedRig(Cleaned, DeltaRig):
    partition_by = ("flag",)


class CleanedOverlappingRig(Cleaned, Overlapping, DeltaRig):
    pass


class CleanedChangingRig(Cleaned, Changing, DeltaRig):
    pass


class CleanedReplaceRig(Cleaned, Replace, DeltaRig):
    pass


class StoreRig(DeltaRig):
    """One table in a bucket of S3; files are uploaded."""

    kind = "s3"

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.place, self.outside = self._place()
        self.storage_options = self.library_options(self.place.options)

    def _place(self) -> tuple[Place, Outside]:
        [found] = accounts_on(delta=self.kind).values()
        return found

    def library_options(self, options: Mapping[str, str]) -> Mapping[str, str]:
        return {
            "AWS_ENDPOINT_URL": options["endpoint"],
            "AWS_ACCESS_KEY_ID": options["access_key_id"],
            "AWS_SECRET_ACCESS_KEY": options["secret_access_key"],
            "AWS_REGION": options["region"],
            "AWS_ALLOW_HTTP": "true",
        }

    @property
    def uri(self) -> str:
        return self.place.url

    def account(self) -> ObjectAccount:
        return object_account(self.place.url, options=self.place.options)

    def copy(self, directory: Path) -> None:
        copy_account(self.outside, directory)

    def leftovers(self) -> list[str]:
        return sorted(self.outside.uploads())

    def get(self, path: str) -> bytes:
        return self.outside.get(path)

    def put(self, path: str, data: bytes) -> None:
        self.outside.put(path, data)


class OverlappingStoreRig(OverlappingRig, StoreRig):
    """Rows are replaced in a table in a bucket; they are staged in a spool beside it."""

    def leftovers(self) -> list[str]:
        listed = {key for key in self.outside.listing() if key.endswith(".parquet") and not key.startswith("_")}
        return self.spooled() + sorted(self.outside.uploads()) + sorted(listed - self.had())

    def had(self) -> set[str]:
        """The files that some version had. The log is short, so all of it is there."""
        table = self.table()
        versions = [DeltaTable(self.uri, version=at, storage_options=self.storage_options) for at in range(table.version() + 1)]
        return {path for each in versions for path in pa.table(each.get_add_actions())["path"].to_pylist()}


class AzureRig(StoreRig):
    """One table in a container of Azure."""

    kind = "az"

    def library_options(self, options: Mapping[str, str]) -> Mapping[str, str]:
        os.environ["AZURITE_BLOB_STORAGE_URL"] = options["endpoint"].removesuffix(f"/{ACCOUNT}")
        return {
            "azure_storage_account_name": ACCOUNT,
            "azure_storage_account_key": options["account_key"],
            "azure_storage_use_emulator": "true",
        }

    @property
    def uri(self) -> str:
        return self.place.url.replace(f"@{ACCOUNT}", "")


class GcsRig(StoreRig):
    """One table in a bucket of Google Cloud Storage."""

    def _place(self) -> tuple[Place, Outside]:
        running = server("gs")
        place = running.place_with_xml(unique("delta"))
        return place, running.outside(place)

    def library_options(self, options: Mapping[str, str]) -> Mapping[str, str]:
        return object_account(self.place.url, options=options).store.for_delta()


class CleanedStoreRig(Cleaned, StoreRig):
    """In a bucket, to which compactions upload files, too."""


class InlineStoreRig(StoreRig):
    """Small files travel in the decision; partitioned."""

    partition_by = ("flag",)
    inline_limit_bytes = INLINE_LIMIT_BYTES


class PartitionedRig(DeltaRig):
    """By a hostile text and a flag."""

    partition_by = ("place", "flag")
