"""Directories in memory: this layer forces thousands of files to the disk, and kills processes but never the machine.

Of each sink's crashes a run draws the half; all run with PENSTOCK_SOAK_FAULTS=all, and where a file is named.
"""

import os
import random
import tempfile
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import pytest
from tests.seed import SEED

from penstock.testing.conformance import CrashContract

MEMORY = Path("/dev/shm")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    crashes = [item for item in items if _of_crashes(item) is not None]
    for item in crashes:
        item.add_marker(pytest.mark.campaign)
    if os.environ.get("PENSTOCK_SOAK_FAULTS") == "all" or any(".py" in argument for argument in config.args):
        return
    generator = random.Random(SEED)
    kept: set[pytest.Item] = set()
    for _, of_one in groupby(crashes, key=_of_crashes):
        cases = list(of_one)
        kept.update(generator.sample(cases, -(-len(cases) // 2)))
    config.hook.pytest_deselected(items=[item for item in crashes if item not in kept])
    items[:] = [item for item in items if _of_crashes(item) is None or item in kept]


def _of_crashes(item: pytest.Item) -> type | None:
    cls = getattr(item, "cls", None)
    return cls if isinstance(cls, type) and issubclass(cls, CrashContract) else None


@pytest.fixture
def tmp_path(tmp_path: Path) -> Iterator[Path]:
    """In memory where the machine has such a place; `tests/unit`, `tests/spark` and `tests/crash` run on the disk."""
    if not os.access(MEMORY, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="penstock-", dir=MEMORY) as directory:
        yield Path(directory)
