"""A Delta table for the suite: read by the library's own engine, and changed as other writers of Delta do."""

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.transaction import AddAction, RemoveAction
from tests.conformance.object_rig import swapped_in

from penstock.core.model import SinkName
from penstock.sink.delta.sink import DeltaSink
from penstock.testing.conformance import SWAPPED, Row, SinkRig
from penstock.testing.conformance.rig import PIPELINE


class DeltaRig(SinkRig):
    """One table in a directory, read by the library's own engine."""

    partition_by: tuple[str, ...] = ()

    @property
    def root(self) -> Path:
        return self.directory / "lake" / "orders é"

    def make(self) -> DeltaSink:
        return DeltaSink(name=SinkName("lake"), pipeline=PIPELINE, directory=self.root, partition_by=self.partition_by)

    def read_back(self) -> Iterator[Row]:
        if not DeltaTable.is_deltatable(str(self.root)):
            return iter(())
        found = pa.table(DeltaTable(str(self.root)).scan())
        return iter(found.to_pylist())

    def leftovers(self) -> list[str]:
        """Everything below the staging directory but its identity and the table's owner; and files that no version has."""
        staging = self.directory / "lake" / ".penstock-staging"
        found = [str(path) for path in staging.rglob("*") if path.is_file()]
        known = {Path(uri).name for uri in DeltaTable(str(self.root)).file_uris()}
        stray = [str(path) for path in self.root.glob("*.parquet") if path.name not in known]
        return [name for name in found if not re.search(r"\.id$|\.owner\.json$", name)] + stray

    # --- what somebody else does to the table

    def active(self) -> list[tuple[str, dict[str, object]]]:
        table = DeltaTable(str(self.root))
        columns = table.metadata().partition_columns
        found = pa.table(table.get_add_actions(flatten=True)).to_pylist()
        return [(row["path"], {name: _text(row[f"partition.{name}"]) for name in columns}) for row in found]

    def damage(self, kind: str) -> None:
        path, values = next(one for one in self.active() if kind != "swapped" or SWAPPED in self.ids(one[0]))
        if kind == "lost":
            self.change(removed=(path, values))
            return
        rows = pq.ParquetFile(self.root / path).read()
        if kind == "foreign":
            rows = rows.slice(0, 1).set_column(0, "id", pa.array([-5], pa.int64()))
        elif kind == "swapped":
            rows = swapped_in(rows)
        elif kind == "changed":
            column = rows.schema.get_field_index("number")
            rows = rows.set_column(column, "number", pa.array([7] * len(rows), pa.int64()))
        pq.write_table(rows, self.root / f"{kind}.parquet")
        self.change(added=(f"{kind}.parquet", values), removed=(path, values) if kind in {"swapped", "changed"} else None)

    def ids(self, path: str) -> list[int]:
        found: list[int] = pq.ParquetFile(self.root / path).read(["id"])["id"].to_pylist()
        return found

    def change(self, *, added=None, removed=None) -> None:
        table = DeltaTable(str(self.root))
        now_ms = int(time.time() * 1000)
        actions: list[object] = []
        if added is not None:
            path, values = added
            size_bytes = (self.root / path).stat().st_size
            rows = pq.ParquetFile(self.root / path).metadata.num_rows
            actions.append(AddAction(path, size_bytes, values, now_ms, data_change=True, stats=json.dumps({"numRecords": rows})))
        if removed is not None:
            path, values = removed
            size_bytes = (self.root / path).stat().st_size
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


class PartitionedRig(DeltaRig):
    """By a hostile text and a flag."""

    partition_by = ("place", "flag")
