"""Acts on a checkpoint, in processes of their own that are killed at every fault point: finished, or taken back byte for byte."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.upgrade.checkpoint_archives import ARCHIVES, content_of

from penstock.checkpoint.act import ACTS
from penstock.core.faults import points
from penstock.run.fault_points import import_all

pytestmark = pytest.mark.crash

import_all()
POINTS = sorted(point.name for point in points() if point.name.startswith("checkpoint."))
REWIND = ("rewind", "checkpoint", "--to-batch", "6")


def penstock(directory: Path, *words: str, faults: str = "") -> int:
    """Run `penstock checkpoint WORDS` in a process of its own, and return how it ended."""
    environment = {**os.environ, "PENSTOCK_FAULTS": faults}
    command = [sys.executable, "-m", "penstock", "checkpoint", *words]
    return subprocess.run(command, cwd=directory, env=environment, capture_output=True, check=False).returncode


def written(directory: Path) -> dict[str, bytes]:
    [archive] = [path for path in ARCHIVES if path.name.startswith("spark-4.3-changelog.")]
    content = content_of(archive)
    for name, data in content.items():
        place = directory / "checkpoint" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
    return content


def content(directory: Path) -> dict[str, bytes]:
    root = directory / "checkpoint"
    found = {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}
    return {name: data for name, data in found.items() if not name.startswith(f"{ACTS}/")}


@pytest.mark.parametrize("point", POINTS)
def test_a_kill_at_a_fault_point_leaves_what_can_be_finished_or_taken_back(tmp_path: Path, point: str) -> None:
    before = written(tmp_path)
    at = "@3" if point in {"checkpoint.keep", "checkpoint.change"} else ""
    assert penstock(tmp_path, *REWIND, "--yes", faults=f"{point}=kill{at}") == -signal.SIGKILL
    assert penstock(tmp_path, "rewind", "checkpoint", "--undo", "--yes", faults=f"{point}=kill{at}") in {-signal.SIGKILL, 3}
    assert penstock(tmp_path, *REWIND, "--yes") == 0
    assert penstock(tmp_path, "verify", "checkpoint") == 0
    assert content(tmp_path).keys() < before.keys()
    assert penstock(tmp_path, "rewind", "checkpoint", "--undo", "--yes") == 0
    assert content(tmp_path) == before
