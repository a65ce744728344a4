"""Sources of real checkpoints get names, in one act that a kill at any file leaves to be finished or undone."""

import shutil
from pathlib import Path

import pytest
from tests.killed import is_killed_by

from penstock.checkpoint.acting import Performed, perform, undo
from penstock.checkpoint.entries import parse_offsets
from penstock.checkpoint.files import LocalFiles
from penstock.checkpoint.migration import plan_migration
from penstock.checkpoint.spark_checkpoint import SparkCheckpoint
from penstock.checkpoint.verification import verify_files
from penstock.core.model import BatchId, SourceName
from penstock.errors import CheckpointDamaged, Refused

GOLDEN = Path(__file__).parent / "checkpoints"
NAMES = (SourceName("right"), SourceName("left"))
POINTS = ("keep", "record", "guard", "change", "done", "release")


@pytest.fixture(name="union")
def _union(tmp_path: Path) -> Path:
    shutil.copytree(GOLDEN / "union/checkpoint", tmp_path / "c")
    return tmp_path / "c"


def migrate(root: Path, *names: str) -> Performed:
    files, given = LocalFiles(root), tuple(map(SourceName, names)) or NAMES
    return perform(files, verb="migrate", request={}, plan=lambda: plan_migration(files, names=given), yes=True)


def test_logs_that_were_compacted_move_whole(tmp_path: Path) -> None:
    shutil.copytree(GOLDEN / "files/checkpoint", root := tmp_path / "c")
    listed = SparkCheckpoint(root).input_files(BatchId(12), (SourceName("a"),))
    first = SparkCheckpoint(root).batch(BatchId(3), (SourceName("a"),))
    migrate(root, "a")
    assert SparkCheckpoint(root).input_files(BatchId(12), (SourceName("a"),)) == listed
    assert SparkCheckpoint(root).batch(BatchId(3), (SourceName("a"),)) == first
    assert not [name for name in content(root) if name.startswith(("sources/0/", "offsets/.", "sources/a/."))]


def content(root: Path) -> dict[str, bytes]:
    found = {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}
    return {name: data for name, data in found.items() if not name.startswith("penstock-acts/")}


@pytest.mark.parametrize("committed", [True, False])
def test_every_batch_is_the_same_with_names(union: Path, *, committed: bool) -> None:
    if not committed:
        (union / "commits/3").unlink()
    before = [SparkCheckpoint(union).batch(BatchId(number), NAMES) for number in range(4)]
    listed = [SparkCheckpoint(union).input_files(BatchId(number), NAMES) for number in range(4)]
    assert migrate(union).act.next_batch_id == 3 + committed
    assert [SparkCheckpoint(union).batch(BatchId(number), NAMES) for number in range(4)] == before
    assert [SparkCheckpoint(union).input_files(BatchId(number), NAMES) for number in range(4)] == listed
    entry = parse_offsets((union / "offsets/3").read_bytes())
    assert (entry.version, list(entry.offsets)) == (2, ["right", "left"])
    assert entry.confs["spark.sql.streaming.queryEvolution.enableSourceEvolution"] == "true"
    assert verify_files(LocalFiles(union)).ok
    with pytest.raises(Refused, match="has sources right, left, expected 2 by their places"):
        migrate(union)


@pytest.mark.usefixtures("kills_raise")
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("occurrence", [1, 7])
def test_what_was_interrupted_is_finished_or_undone(union: Path, tmp_path: Path, point: str, occurrence: int) -> None:
    before = content(union)
    shutil.copytree(union, tmp_path / "whole")
    migrate(tmp_path / "whole")
    fault = f"checkpoint.{point}=kill@{occurrence if point in {'keep', 'change'} else 1}"
    assert is_killed_by(fault, lambda: migrate(union))
    migrate(union)
    assert content(union) == content(tmp_path / "whole")
    undo(LocalFiles(union), verb="migrate", yes=True)
    assert content(union) == before


def test_what_no_names_can_be_given_to_is_left(union: Path) -> None:
    before = content(union)
    with pytest.raises(Refused, match="has sources 0, 1, expected 1 by their places"):
        migrate(union, "right")
    shutil.copytree(union / "sources/1", union / "sources/left")
    with pytest.raises(Refused, match="has a folder sources/left already"):
        migrate(union)
    shutil.rmtree(union / "sources/left")
    (union / "offsets/2").write_text("v1\n")
    with pytest.raises(CheckpointDamaged):
        migrate(union)
    assert {name: data for name, data in content(union).items() if name != "offsets/2"}.items() <= before.items()
