"""Tables of open formats for the suite: how rows get into them, whatever the format."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from penstock.core.model import SinkName
from penstock.sink.lake.keyed_sink import lake_sink
from penstock.sink.lake.log import TableLog
from penstock.sink.lake.sink import LakeSink
from penstock.sink.lake.write_mode import WriteMode
from penstock.sink.parquet.directory import DirectoryAccount
from penstock.sink.parquet.object import ObjectAccount
from penstock.sink.spool import Spool
from penstock.testing.conformance import Row, SinkRig
from penstock.testing.conformance.rig import PIPELINE


class LakeRig(SinkRig):
    """One table, to which rows are appended."""

    partition_by: tuple[str, ...] = ()
    write = "append"
    key: tuple[str, ...] = ("id", "place")
    inline_limit_bytes = 0

    def account(self) -> DirectoryAccount | ObjectAccount:
        raise NotImplementedError

    def log(self) -> TableLog:
        raise NotImplementedError

    def had(self) -> set[str]:
        """The names of the files that some version had."""
        raise NotImplementedError

    def list_again(self) -> None:
        """Show readers the rows of a file twice, by another entry for a file of its name."""
        raise NotImplementedError

    def compact(self) -> None:
        """Have all rows rewritten by the library."""
        raise NotImplementedError

    def mark(self, position: int) -> None:
        """Let the marker stand at another position, as a tool does that writes back what it read before."""
        raise NotImplementedError

    @property
    def is_by_key(self) -> bool:
        return self.write in {"upsert", "insert_if_absent"}

    def make(self) -> LakeSink:
        spool = Spool(root=str(self.directory / "spool"), sink=SinkName("lake"), inline_limit_bytes=self.inline_limit_bytes)
        return lake_sink(
            name=SinkName("lake"),
            pipeline=PIPELINE,
            account=self.account(),
            log=self.log(),
            partition_by=self.partition_by,
            inline_limit_bytes=self.inline_limit_bytes,
            mode=WriteMode(write=self.write, key=self.key if self.is_by_key else (), deletes=self.has_deletes),
            spool=spool,
        )

    def spooled(self) -> list[str]:
        return [str(path) for path in self.directory.glob("spool/**/*") if path.is_file() and path.suffix != ".id"]

    def lose_staging(self) -> None:
        if self.is_by_key:
            for path in self.directory.glob("spool/**/*.arrow"):
                path.unlink()
            return
        staged = sorted(self.directory.rglob("*.staged"))
        assert staged
        staged[-1].unlink()


class Changing(LakeRig):
    """Rows replace others: files of former versions stay for those who read these."""

    write = "upsert"

    def leftovers(self) -> list[str]:
        """As everywhere, but without files that some version had; and the spool."""
        had = self.had()
        return self.spooled() + [name for name in super().leftovers() if Path(name).name not in had]

    def settle(self, batches: Sequence[Sequence[Row]]) -> Iterable[Row]:
        there: dict[tuple[object, ...], Row] = {}
        for row in (row for batch in batches for row in batch):
            key = tuple(row[name] for name in self.key)
            if self.has_deletes and self.deletes(row):
                there.pop(key, None)
            elif self.write == "upsert" or key not in there:
                there[key] = row
        return there.values()


class IfAbsent(Changing):
    write = "insert_if_absent"


class PartitionedUpsert(Changing):
    """By a column of the key, and by another one, in which a row can move to another partition."""

    partition_by = ("place", "flag")


class Overlapping(Changing):
    """Every second row of a batch has the key of one in every other batch."""

    key = ("id",)

    def rows(self, ids: Iterable[int]) -> list[Row]:
        return [{**row, "id": _shared(row["id"]), "raw": str(row["id"]).encode()} for row in super().rows(ids)]


class OverlappingPartitioned(Overlapping):
    partition_by = ("flag",)


class OverlappingIfAbsent(Overlapping):
    write = "insert_if_absent"


class Deleting(Overlapping):
    """Every third row deletes."""

    has_deletes = True

    def deletes(self, row: Row) -> bool:
        return int(row["raw"]) % 3 == 1


class Replace(Changing):
    write = "replace"

    def settle(self, batches: Sequence[Sequence[Row]]) -> Iterable[Row]:
        return batches[-1] if batches else []


class Overwrite(Changing):
    """Each batch has rows of some partitions."""

    write = "overwrite_partitions"
    partition_by = ("flag", "place")

    def settle(self, batches: Sequence[Sequence[Row]]) -> Iterable[Row]:
        there: dict[tuple[object, ...], list[Row]] = {}
        for batch in batches:
            there |= {self.partition_of(row): [] for row in batch}
            for row in batch:
                there[self.partition_of(row)].append(row)
        return [row for rows in there.values() for row in rows]

    def partition_of(self, row: Row) -> tuple[object, ...]:
        return tuple(row[name] for name in self.partition_by)


def _shared(number: int) -> int:
    return number if number % 2 else number % 1000
