"""Iceberg tables with hidden partitions, and with a branch beside `main`."""

from collections.abc import Iterator
from dataclasses import replace

from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.manifest import DataFile
from tests.conformance.iceberg_rig import IcebergRig, RestRig
from tests.conformance.lake_rig import TARGET_BYTES, Maintained, Overlapping, Overwrite

from penstock.sink.iceberg.log import IcebergTable
from penstock.sink.lake.maintenance import Maintenance, Upkeep
from penstock.sink.lake.sink import LakeSink
from penstock.testing.conformance import Row


class BranchRig(IcebergRig):
    """One branch of a table, whose `main` is beside it."""

    branch = "audit"

    def log(self) -> IcebergTable:
        return replace(super().log(), branch=self.branch)

    def read_back(self) -> Iterator[Row]:
        try:
            table = self.table()
        except (NoSuchTableError, NoSuchNamespaceError):
            return iter(())
        head = table.snapshot_by_name(self.branch)
        return iter(() if head is None else table.scan(snapshot_id=head.snapshot_id).to_arrow().to_pylist())

    def active(self) -> list[DataFile]:
        table = self.table()
        head = table.snapshot_by_name(self.branch)
        return [] if head is None else [task.file for task in table.scan(snapshot_id=head.snapshot_id).plan_files()]


class OverlappingBranchRig(Overlapping, BranchRig):
    pass


class MaintainedBranchRig(Maintained, BranchRig):
    """Compactions alone: snapshots do not leave."""

    def make(self) -> LakeSink:
        sink = super().make()
        sink._upkeep = Upkeep(Maintenance(every=1, target_bytes=TARGET_BYTES, cleaner=None), title=self.name)
        return sink


class TransformedRig(IcebergRig):
    """Hidden partitions, one of each kind that the types allow, with NULL in some; the files hold all columns."""

    partition_by = ("flag", "months(day)", "bucket(4, number)", "truncate(1, name)", "truncate(1, raw)")


class TransformedUpsertRig(Overlapping, IcebergRig):
    """By buckets of the key, and by a column in which a row can move to another partition."""

    partition_by = ("bucket(4, id)", "years(seen)")


class TransformedOverwriteRig(Overwrite, IcebergRig):
    """A batch replaces the rows of the transformed partitions that it has rows of."""

    partition_by = ("months(day)", "truncate(1, name)")

    def partition_of(self, row: Row) -> tuple[object, ...]:
        day, name = row["day"], row["name"]
        return None if day is None else (day.year, day.month), None if name is None else name[:1]


class TransformedMaintainedRig(Maintained, IcebergRig):
    partition_by = ("days(seen)", "bucket(2, price)")


class TransformedRestRig(RestRig):
    """Hidden partitions, whose fields the server checks, too."""

    partition_by = ("bucket(4, number)", "days(seen)", "truncate(1, raw)")


class BranchRestRig(BranchRig, RestRig):
    """The server compares where branches are."""
