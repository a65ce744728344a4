"""The memory sink passes the suite, inline and from spool files."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.model import SinkName
from penstock.sink import memory
from penstock.testing.conformance import Row, SinkContract, SinkRig, StagingLossContract, as_batch, make_rows

NAME = SinkName("kept for tests")


class MemoryRig(SinkRig):
    inline_limit_bytes = 100_000

    def make(self) -> memory.MemorySink:
        return memory.MemorySink(name=NAME, spool=str(self.directory / "spool"), inline_limit_bytes=self.inline_limit_bytes)

    def read_back(self) -> Iterable[Row]:
        rows: list[Row] = memory.table(NAME).to_pylist()
        return rows

    def leftovers(self) -> Sequence[str]:
        return [str(path) for path in self.directory.glob("spool/**/*") if path.is_file() and path.suffix != ".id"]

    def damage(self, kind: str) -> None:
        rows = memory.table(NAME).to_pylist()
        changed = {
            "lost": rows[1:],
            "doubled": [rows[0], *rows],
            "changed": [{**rows[0], "name": "other"}, *rows[1:]],
            "foreign": [*rows, *make_rows([-1])],
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
        memory.clear(NAME)


class TestMemoryStagingLost(StagingLossContract):
    @pytest.fixture
    def rig(self, tmp_path):
        yield SpooledMemoryRig(tmp_path)
        memory.clear(NAME)
