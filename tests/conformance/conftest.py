"""Directories in memory: this layer forces thousands of files to the disk, and kills processes but never the machine."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

MEMORY = Path("/dev/shm")


@pytest.fixture
def tmp_path(tmp_path: Path) -> Iterator[Path]:
    """In memory where the machine has such a place; `tests/unit`, `tests/spark` and `tests/crash` run on the disk."""
    if not os.access(MEMORY, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="penstock-", dir=MEMORY) as directory:
        yield Path(directory)
