"""A pipeline of two accounts on directories whose batches are taken back, and runs of it."""

import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.unit.removed_world import Run, World

from penstock.core import faults
from penstock.core.model import Entry, SinkName
from penstock.run.assembly import ledger_of
from penstock.run.rewind import Rewind, rewind


class RewoundWorld(World):
    """A `World` that can be rewound, and goes on from any batch."""

    def go_on(self, *batches: int) -> "RewoundWorld":
        """Deliver the batches in another run, as Spark plans them then."""
        run = Run(self.plan, self.checkpoint)
        run.write("metadata", '{"id":"5f0c9f0e-0000-4000-8000-000000000001"}')
        with closing(run.runtime):
            for number in batches:
                run.plan(number)
                run.deliver(number)
                run.write(f"commits/{number}", "v1\n{}")
        return self

    @property
    def checkpoint(self) -> Path:
        return self.root / "home" / "checkpoint"

    def rewind(self, to_batch: int, *keep: str, yes: bool = True) -> Rewind:
        return rewind(self.plan, to_batch=to_batch, keep=[SinkName(name) for name in keep], reason="a test", yes=yes)

    def entries(self) -> list[Entry]:
        with closing(ledger_of(self.plan)) as ledger:
            return list(ledger.newest_first())

    def numbers(self, log: str) -> list[int]:
        return sorted(int(path.name) for path in (self.checkpoint / log).iterdir() if path.name.isdecimal())

    def batches(self) -> list[int]:
        """The batches that the files of both accounts are of."""
        found = {path.name.partition("-b")[2].partition("-")[0] for account in ("a", "b") for path in self.files(account)}
        return sorted(map(int, found))


@pytest.fixture(scope="session")
def delivered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four batches, delivered once for all tests: each works on a copy."""
    return RewoundWorld(tmp_path_factory.mktemp("delivered")).go_on(0, 1, 2, 3).root


@pytest.fixture
def world(tmp_path: Path, delivered: Path) -> Iterator[RewoundWorld]:
    """The world after those batches. No fault is armed afterwards."""
    shutil.copytree(delivered, tmp_path, dirs_exist_ok=True)
    yield RewoundWorld(tmp_path)
    faults.arm("")
