"""Tables of open formats for the suite: how rows get into them, whatever the format."""

import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
from tests.conformance.change_rig import newest_by_number
from tests.servers.server import Outside

from penstock.core.model import Publication, Published, SinkName
from penstock.core.update_condition import parse_condition
from penstock.protocols import SCHEMA_KEY
from penstock.sink.lake.keyed_sink import KeyedLakeSink, lake_sink
from penstock.sink.lake.log import TableLog
from penstock.sink.lake.maintained_table import CleansTable
from penstock.sink.lake.maintenance import Maintenance
from penstock.sink.lake.sink import LakeSink
from penstock.sink.lake.write_mode import WriteMode
from penstock.sink.parquet.directory import DirectoryAccount
from penstock.sink.parquet.object import ObjectAccount
from penstock.sink.spool import Spool
from penstock.sink.table.target import BY_KEY
from penstock.testing.conformance import Row, SinkRig
from penstock.testing.conformance.publishing import PublishContract, RaceContract
from penstock.testing.conformance.rig import PIPELINE
from penstock.testing.conformance.verifying import VerifyContract

TARGET_BYTES = 128_000_000
RETENTION_MS = 3_600_000


class FormatContract(PublishContract, RaceContract, VerifyContract):
    """What reaches a table in its format. Staging and sweeping are the same for all formats, and pass on Delta."""


class RoundAfterEach(LakeSink):
    """A round of maintenance follows each publication, whoever asks for it."""

    def publish(self, publication: Publication) -> Published:
        published = super().publish(publication)
        self.maintain_target(publication)
        return published


class MaintainedSink(RoundAfterEach):
    pass


class MaintainedKeyedSink(RoundAfterEach, KeyedLakeSink):
    pass


class LakeRig(SinkRig):
    """One table, to which rows are appended."""

    partition_by: tuple[str, ...] = ()
    write = "append"
    key: tuple[str, ...] = ("id", "place")
    sequence_by: str | None = None
    update_when: str | None = None
    keeps_rows = False
    """Whether the table may hold rows of others before the first batch."""
    inline_limit_bytes = 0
    is_maintained = False
    """Whether a round of maintenance follows each publication."""
    every = 1
    """How many publications there are to a round of it."""
    ahead_ms = 0
    """How far the clock of maintenance is ahead. Beyond the retention, each round removes what only older versions have."""

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
        return self.write in BY_KEY

    def copy(self, directory: Path) -> None:
        """Copy all that the table's place holds."""
        raise NotImplementedError

    def rows_of_copy(self, copy: Path) -> "pa.Table":
        """What DuckDB's own reader of the format sees in a copy of the table as it is now."""
        raise NotImplementedError

    def seen_by_duckdb(self) -> list[Row]:
        """The rows that another engine sees, which finds them by the table's metadata itself."""
        with TemporaryDirectory(prefix="table-") as scratch:  # the table's own path is not ASCII, which its readers get wrong
            copy = Path(scratch) / "copy"
            self.copy(copy)
            return list(self.rows_of_copy(copy).to_pylist())

    def cleaner(self, log: TableLog) -> CleansTable:
        """What removes the files that only older versions of the table have."""
        raise NotImplementedError

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000 + self.ahead_ms

    def make(self) -> LakeSink:
        spool = Spool(root=str(self.directory / "spool"), sink=SinkName("lake"), inline_limit_bytes=self.inline_limit_bytes)
        log = self.log()
        settings: dict[str, Any] = {
            "name": SinkName("lake"),
            "pipeline": PIPELINE,
            "account": self.account(),
            "log": log,
            "partition_by": self.partition_by,
            "inline_limit_bytes": self.inline_limit_bytes,
            "mode": WriteMode(
                write=self.write,
                key=self.key if self.is_by_key else (),
                deletes=self.has_deletes,
                sequence_by=self.sequence_by if self.write in {"upsert", "history"} else None,
                update_when=None if self.update_when is None else parse_condition(self.update_when),
                keeps_rows=self.keeps_rows,
            ),
            "spool": spool,
        }
        if not self.is_maintained:
            return lake_sink(**settings)
        maintenance = Maintenance(every=self.every, target_bytes=TARGET_BYTES, cleaner=self.cleaner(log))
        return (MaintainedKeyedSink if self.is_by_key else MaintainedSink)(**settings, maintenance=maintenance)

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


class Maintained(LakeRig):
    """Each publication is followed by a compaction, and by the removal of files that are old enough."""

    is_maintained = True

    def batch(self, rows: Sequence[Row]) -> "tuple[pa.RecordBatch, pa.UInt64Array]":
        """As tasks write them: with the schema, which every file then has, and by which a compaction knows its rows."""
        batch, hashes = super().batch(rows)
        return batch.replace_schema_metadata({SCHEMA_KEY: self.schema.encode()}), hashes

    def leftovers(self) -> list[str]:
        """As everywhere, but without files that some version had."""
        had = self.had()
        return [name for name in super().leftovers() if Path(name).name not in had]


class Cleaned(Maintained):
    """All former versions are old enough."""

    ahead_ms = 10 * RETENTION_MS


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


class Newest(Overlapping):
    """A row never replaces one whose `number` is greater. Many are equal: of them the last one counts."""

    sequence_by = "number"

    def rows(self, ids: Iterable[int]) -> list[Row]:
        return [{**row, "number": (int(row["raw"]) * 7919 + 15) % 50} for row in super().rows(ids)]

    def settle(self, batches: Sequence[Sequence[Row]]) -> Iterable[Row]:
        return newest_by_number(batches)


class Versions(Newest):
    """Every version of a row stays. Of those of one key and one number the last one counts."""

    write = "history"

    def settle(self, batches: Sequence[Sequence[Row]]) -> Iterable[Row]:
        return {(row["id"], row["number"]): row for batch in batches for row in batch}.values()


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


def copy_account(outside: Outside, directory: Path) -> None:
    """Copy all objects of an account of a store; some stores list folders as objects whose names end with a slash."""
    for key in (key for key in outside.listing() if not key.endswith("/")):
        path = directory / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(outside.get(key))


def _shared(number: int) -> int:
    return number if number % 2 else number % 1000
