"""The memory sink passes the suite, inline and from spool files."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.core.model import RowDigest, SinkName
from penstock.sink import memory
from penstock.testing.conformance import (
    SWAPPED,
    Bench,
    Row,
    SinkContract,
    SinkRig,
    StagingLossContract,
    VerifyBesideDriverContract,
    as_batch,
    make_rows,
    swapped,
)

NAME = SinkName("kept for tests")


class MemoryRig(SinkRig):
    inline_limit_bytes = 100_000

    def make(self) -> memory.MemorySink:
        return memory.MemorySink(name=NAME, spool=str(self.directory / "spool"), inline_limit_bytes=self.inline_limit_bytes)

    def read_back(self) -> Iterable[Row]:
        rows: list[Row] = memory.memory_table(NAME).to_pylist()
        return rows

    def leftovers(self) -> Sequence[str]:
        return [str(path) for path in self.directory.glob("spool/**/*") if path.is_file() and path.suffix != ".id"]

    def damage(self, kind: str) -> None:
        rows = memory.memory_table(NAME).to_pylist()
        changed = {
            "lost": rows[1:],
            "doubled": [rows[0], *rows],
            "changed": [{**rows[0], "name": "other"}, *rows[1:]],
            "foreign": [*rows, *make_rows([-1])],
            "swapped": [swapped(row) if row["id"] == SWAPPED else row for row in rows],
        }[kind]
        key = memory._newest[NAME]
        memory._kept[key] = replace(memory._kept[key], batches=(as_batch(changed),))


class SpooledMemoryRig(MemoryRig):
    inline_limit_bytes = 0

    def lose_staging(self) -> None:
        for path in self.leftovers():
            Path(path).unlink()


class TestMemory(SinkContract):
    @pytest.fixture(params=[MemoryRig, SpooledMemoryRig], ids=lambda rig: rig.__name__)
    def rig(self, request, tmp_path):
        yield request.param(tmp_path)
        memory.clear_memory_table(NAME)


class TestMemoryBesideDriver(VerifyBesideDriverContract):
    in_process = True

    @pytest.fixture
    def rig(self, tmp_path):
        yield MemoryRig(tmp_path)
        memory.clear_memory_table(NAME)


@pytest.mark.parametrize("row_digest", RowDigest)
def test_only_digests_that_cover_nulls_find_a_value_in_another_column(tmp_path: Path, row_digest: RowDigest) -> None:
    """What `verify` says that it cannot see in older pipelines."""
    rig = MemoryRig(tmp_path)
    rig.row_digest = row_digest
    bench = Bench(rig)
    try:
        bench.deliver(bench.sink(), bench.rows(range(1000, 1050)), batch_id=0)
        rig.damage("swapped")
        assert bench.verify(bench.sink()).ok == (row_digest is RowDigest.XXHASH64)
    finally:
        bench.close()
        memory.clear_memory_table(NAME)


class TestMemoryStagingLost(StagingLossContract):
    @pytest.fixture
    def rig(self, tmp_path):
        yield SpooledMemoryRig(tmp_path)
        memory.clear_memory_table(NAME)
