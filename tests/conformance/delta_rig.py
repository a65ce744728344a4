"""A Delta table for the suite: read by the library's own engine, and changed as other writers of Delta do."""

import io
import json
import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction
from tests.conformance.object_rig import swapped_in
from tests.servers.fixtures import accounts_on

from penstock.core.model import SinkName
from penstock.sink.delta.sink import DeltaSink
from penstock.sink.parquet import directory_account, object_account
from penstock.sink.parquet.directory import DirectoryAccount
from penstock.sink.parquet.object import ObjectAccount
from penstock.testing.conformance import SWAPPED, Row, SinkRig
from penstock.testing.conformance.rig import PIPELINE


class DeltaRig(SinkRig):
    """One table in a directory, read by the library's own engine."""

    partition_by: tuple[str, ...] = ()
    storage_options: Mapping[str, str] | None = None

    @property
    def root(self) -> Path:
        return self.directory / "lake" / "orders é"

    @property
    def uri(self) -> str:
        return str(self.root)

    def account(self) -> DirectoryAccount | ObjectAccount:
        return directory_account(self.root)

    def make(self) -> DeltaSink:
        account = self.account()
        return DeltaSink(
            name=SinkName("lake"), pipeline=PIPELINE, account=account, partition_by=self.partition_by, inline_limit_bytes=0
        )

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

    def rows_of(self, path: str) -> "pa.Table":
        return pq.ParquetFile(io.BytesIO(self.get(path))).read()

    def ids(self, path: str) -> list[int]:
        found: list[int] = self.rows_of(path)["id"].to_pylist()
        return found

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

    def lose_staging(self) -> None:
        staged = sorted(self.directory.rglob("*.staged"))
        assert staged
        staged[-1].unlink()


def _text(value: object) -> str | None:
    return None if value is None else str(value).lower() if isinstance(value, bool) else str(value)


class StoreRig(DeltaRig):
    """One table in a bucket of S3; files are uploaded."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        [(self.place, self.outside)] = accounts_on(delta="s3").values()
        options = self.place.options
        self.storage_options = {
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

    def leftovers(self) -> list[str]:
        return sorted(self.outside.uploads())

    def get(self, path: str) -> bytes:
        return self.outside.get(path)

    def put(self, path: str, data: bytes) -> None:
        self.outside.put(path, data)


class InlineStoreRig(StoreRig):
    """Small files travel in the decision; partitioned."""

    partition_by = ("flag",)

    def make(self) -> DeltaSink:
        return DeltaSink(name=SinkName("lake"), pipeline=PIPELINE, account=self.account(), partition_by=self.partition_by)


class PartitionedRig(DeltaRig):
    """By a hostile text and a flag."""

    partition_by = ("place", "flag")
