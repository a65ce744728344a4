"""The parquet sink over directories passes the suite of all sinks: with renames and with hard links, one account and three."""

import re
import shutil
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.conformance.beside_driver import looks_of
from tests.conformance.object_rig import moved_between, swapped_in

from penstock.core.model import AccountName, SinkName
from penstock.sink.parquet import ParquetSink, directory_account
from penstock.sink.parquet.layout import PartitionColumn
from penstock.testing.conformance import (
    DAMAGES,
    SWAPPED,
    CrashContract,
    IdentityContract,
    Row,
    SinkContract,
    SinkRig,
    VerifyBesideDriverContract,
)
from penstock.testing.conformance.rig import PIPELINE

ACCOUNTS = ("EWR", "JFK", "LGA")


class ParquetRig(SinkRig):
    """Three accounts, partitioned by a hostile text and a date."""

    whole_batches = False
    accounts: tuple[str, ...] = ACCOUNTS
    partition_by: tuple[str, ...] = ("place", "flag")
    publish_by = "rename"

    def root(self, account: str) -> Path:
        return self.directory / "lake" / account

    def make(self) -> ParquetSink:
        options = {"publish_by": self.publish_by}
        return ParquetSink(
            name=SinkName("lake"),
            pipeline=PIPELINE,
            accounts={AccountName(name): directory_account(self.root(name), options=options) for name in self.accounts},
            route_sql="account" if len(self.accounts) > 1 else None,
            partition_by=self.partition_by,
        )

    def files(self) -> list[Path]:
        """What a reader that only lists the directories finds."""
        return sorted(path for name in self.accounts for path in self.root(name).rglob("*") if path.is_file())

    def read_back(self) -> Iterator[Row]:
        for path in self.files():
            yield from self._rows_of(path)

    def _rows_of(self, path: Path) -> Iterator[Row]:
        values = dict(self._value(part) for part in path.parts if "=" in part)
        for row in pq.ParquetFile(path).read().to_pylist():
            yield {**row, **values}

    def _value(self, directory: str) -> tuple[str, object]:
        name, _, text = directory.partition("=")
        kind = {"place": pa.string(), "flag": pa.bool_()}[name]
        return name, PartitionColumn(name=name, index=0, kind=kind).value_in(text)

    def unit_of(self, row: Row) -> object:
        return (row["id"] % len(self.accounts), *(row[column] for column in self.partition_by))

    def leftovers(self) -> list[str]:
        """Everything below the staging directories but identities and marks."""
        staging = self.directory / "lake" / ".penstock-staging"
        found = [path for path in staging.rglob("*") if path.is_file() and path.suffix != ".id" and path.name != ".owner.json"]
        return sorted(str(path) for path in found if not re.fullmatch(r"marker-\d{20}\.json", path.name))

    def damage(self, kind: str) -> None:
        victim = self.files()[0] if kind != "swapped" else next(path for path in self.files() if SWAPPED in _ids(path))
        if kind == "lost":
            victim.unlink()
        elif kind == "doubled":
            shutil.copy(victim, victim.with_name("part-copied.parquet"))
        elif kind == "foreign":
            pq.write_table(pa.table({"x": [1]}), victim.with_name("foreign.parquet"))
        elif kind == "swapped":
            pq.write_table(swapped_in(pq.ParquetFile(victim).read()), victim)
        elif kind == "moved":
            pair = next(pair for pair in combinations(self.files(), 2) if pair[0].parent == pair[1].parent)
            changed = moved_between(*(pq.ParquetFile(path).read() for path in pair))
            for path, rows in zip(pair, changed, strict=True):
                pq.write_table(rows, path)
        else:
            rows = pq.ParquetFile(victim).read()
            column = rows.schema.get_field_index("number")
            changed = rows.set_column(column, "number", pa.array([7] * len(rows), pa.int64()))
            pq.write_table(changed, victim)

    def lose_staging(self) -> None:
        staged = sorted(self.directory.rglob("*.staged"))
        assert staged
        staged[-1].unlink()


def _ids(path: Path) -> list[int]:
    ids: list[int] = pq.ParquetFile(path).read(["id"])["id"].to_pylist()
    return ids


class FewFilesRig(ParquetRig):
    """For hundreds of crashes."""

    partition_by = ("flag",)


class LinkedRig(FewFilesRig):
    """Publishes by hard link, as on file systems that cannot rename without replacing."""

    publish_by = "link"


class PlainRig(ParquetRig):
    """One account, no route, no partitions."""

    accounts = ("only",)
    partition_by = ()


RIGS = {"rename": ParquetRig, "link": LinkedRig, "plain": PlainRig}


@pytest.fixture(params=sorted(RIGS))
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> ParquetRig:
    return RIGS[request.param](tmp_path)


class TestParquet(SinkContract, IdentityContract):
    damages = (*DAMAGES, "moved")


class Renamed:
    @pytest.fixture
    def rig(self, tmp_path: Path) -> FewFilesRig:
        return FewFilesRig(tmp_path)


class Linked:
    @pytest.fixture
    def rig(self, tmp_path: Path) -> LinkedRig:
        return LinkedRig(tmp_path)


class TestParquetBesideDriver(VerifyBesideDriverContract):
    looks, batches = looks_of("parquet", fewer=25), 10  # of several files each, which every look reads

    @pytest.fixture
    def rig(self, tmp_path: Path) -> FewFilesRig:
        return FewFilesRig(tmp_path)


class TestParquetKilled(Renamed, CrashContract):
    """Every point of staging, publishing, marking and sweeping: parquet.prepare, parquet.stage.open, and so on."""

    fault_parts = ("parquet", "rename")


class TestLinkedParquetKilled(Linked, CrashContract):
    """What differs where a file is published by link and unlink."""

    fault_parts = ("hardlink",)
