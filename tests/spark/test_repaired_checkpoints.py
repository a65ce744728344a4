"""Random surgery, `checkpoint repair`, then Spark: the pipeline goes on exactly, or it is refused; never wrong in silence.

CI damages a few files of one checkpoint; `make soak` does 1,000 damages. PENSTOCK_SEED replays them.
"""

import hashlib
import os
import random
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.checkpoint.act import ACTS
from tests.crash.commandline import penstock
from tests.seed import SEED
from tests.spark.rewound import Machine, Rows, settings
from tests.upgrade.test_checkpoint_surgery import DAMAGES, Content

EVERYTHING = os.environ.get("PENSTOCK_SOAK_FAULTS") == "all"
CASES = [("stateless", "hdfs"), ("windows", "hdfs"), ("distinct", "changelog"), ("joined", "rocksdb")]
CHOSEN = CASES if EVERYTHING else random.Random(SEED).sample(CASES, 1)
EACH = 250 if EVERYTHING else 5
BATCHES = 6

pytestmark = [pytest.mark.spark, pytest.mark.campaign, pytest.mark.timeout(3600)]


@dataclass(frozen=True)
class Stopped:
    """A machine whose pipeline has stopped, with input that waits; to begin from again and again."""

    machine: Machine
    copy: Path
    delivered: Rows
    expected: Rows

    @property
    def checkpoint(self) -> Path:
        return self.machine.root / "pipeline" / "checkpoint"

    def begin(self) -> None:
        shutil.rmtree(self.machine.root)
        shutil.copytree(self.copy, self.machine.root)

    def content(self) -> Content:
        """The files of the checkpoint, without the backups of acts."""
        files = {path.relative_to(self.checkpoint).as_posix(): path for path in self.checkpoint.rglob("*") if path.is_file()}
        return {name: path.read_bytes() for name, path in files.items() if not name.startswith(f"{ACTS}/")}

    def damage(self, draw: random.Random) -> str:
        before = self.content()
        after = dict(before)
        what = draw.choice(DAMAGES)(after, draw.choice(sorted(name for name in after if after[name])), draw)
        for name in before.keys() | after.keys():
            place = self.checkpoint / name
            if name not in after:
                place.unlink()
            elif after[name] != before.get(name):
                place.write_bytes(after[name])
        return what


@pytest.fixture
def stopped(spark: SparkSession, tmp_path: Path, kind: str, store: str) -> Iterator[Stopped]:
    with settings(spark, store):
        (tmp_path / "machine").mkdir()
        machine = Machine(tmp_path / "machine", tmp_path / "source", kind)
        machine.feed(BATCHES)
        machine.write("pipeline")
        machine.run("pipeline")
        delivered = machine.table("pipeline")
        machine.feed(1)
        copy = Path(shutil.copytree(machine.root, tmp_path / "copy"))
        yield Stopped(machine, copy, delivered, machine.expected(spark))


@pytest.mark.parametrize(("kind", "store"), CHOSEN)
def test_after_a_repair_it_goes_on_exactly_or_is_refused(stopped: Stopped, kind: str, store: str) -> None:
    draw, known, ended = random.Random(f"{SEED} {kind} {store}"), dict[str, str](), Counter[str]()
    for _ in range(EACH):
        stopped.begin()
        what = stopped.damage(draw)
        try:
            ended[outcome(stopped, known)] += 1
        except AssertionError as wrong:
            raise AssertionError(f"PENSTOCK_SEED={SEED} {kind} {store}: {what}") from wrong
    print(f"PENSTOCK_SEED={SEED} {kind} {store}: {EACH} damages, {len(known)} starts of Spark; {dict(ended)}")


def outcome(stopped: Stopped, known: dict[str, str]) -> str:
    """What came of a damage; `known` are the checkpoints on which Spark was started before."""
    damaged = stopped.content()
    repaired = penstock("checkpoint", "repair", "pipeline.yaml", "--yes", directory=stopped.machine.root)
    left = stopped.content()
    if repaired.code != 0:
        assert (repaired.code, left) == (3, damaged), str(repaired)
        return "repair refused"
    how = "as it was" if left == damaged else "repaired"
    key = hashlib.sha256(repr(sorted(left.items())).encode()).hexdigest()
    if key not in known:
        known[key] = went_on(stopped)
    return f"{how}, {known[key]}"


def went_on(stopped: Stopped) -> str:
    ran = penstock("run", "pipeline.yaml", "--json", directory=stopped.machine.root)
    if ran.code == 0:
        stopped.machine.assert_exact("pipeline", stopped.expected)
        return "exact"
    found = stopped.machine.lake("pipeline"), stopped.machine.table("pipeline")
    assert found == (stopped.delivered, stopped.delivered), str(ran)
    return "start refused" if ran.code == 3 else "Spark does not start"
