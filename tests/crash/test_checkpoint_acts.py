"""Acts on a checkpoint, in processes of their own that are killed at every fault point: finished, or taken back byte for byte."""

import os
import signal
from pathlib import Path

import pytest

from penstock.checkpoint.act import ACTS
from penstock.core.faults import points
from penstock.run.fault_points import import_all
from tests.crash.commandline import penstock
from tests.crash.forked import Forked
from tests.upgrade.checkpoint_archives import ARCHIVES, content_of

pytestmark = pytest.mark.crash

POINTS = (
    *("checkpoint.keep", "checkpoint.record", "checkpoint.guard", "checkpoint.change", "checkpoint.done"),
    "checkpoint.release",
)
REWIND = ("rewind", "checkpoint", "--to-batch", "6")


def killed(directory: Path, *words: str, faults: str) -> bool:
    """Run `penstock checkpoint WORDS` in a process of its own, and return whether the fault killed it."""
    environment = {**os.environ, "PENSTOCK_FAULTS": faults}
    process = Forked(["-m", "penstock", "checkpoint", *words], cwd=directory, env=environment)
    process.communicate()
    return process.returncode == -signal.SIGKILL


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
    fault = f"{point}=kill{'@3' if point in {'checkpoint.keep', 'checkpoint.change'} else ''}"
    undo = ("checkpoint", "rewind", "checkpoint", "--undo", "--yes")
    assert killed(tmp_path, *REWIND, "--yes", faults=fault)
    assert penstock("checkpoint", *REWIND, "--yes", directory=tmp_path).code == 0
    assert penstock("checkpoint", "verify", "checkpoint", directory=tmp_path).code == 0
    assert content(tmp_path).keys() < before.keys()
    assert killed(tmp_path, *undo[1:], faults=fault) is (point not in {"checkpoint.keep", "checkpoint.record"})
    if content(tmp_path) != before:
        assert penstock(*undo, directory=tmp_path).code == 0
    assert content(tmp_path) == before


def test_every_fault_point_of_an_act_is_killed_at() -> None:
    import_all()
    assert {point.name for point in points() if point.name.startswith("checkpoint.")} == set(POINTS)
