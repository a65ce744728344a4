"""Every kind of query on every kind of state store: rewound, restored on a copy of the machine, forked and compared: exact.

CI takes one of them back by 1 and 10 batches; `make soak` all of them, by 1, 10 and 100. PENSTOCK_SEED replays what was drawn.
"""

import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.seed import SEED
from tests.spark.rewound import STORES, Machine, settings

EVERYTHING = os.environ.get("PENSTOCK_SOAK_FAULTS") == "all"
DEPTHS = (1, 10, 100) if EVERYTHING else (1, 10)
CASES = [("stateless", "hdfs"), *((kind, store) for kind in ("windows", "distinct", "joined", "numbered") for store in STORES)]
CHOSEN = CASES if EVERYTHING else random.Random(SEED).sample(CASES, 1)
pytestmark = [pytest.mark.spark, pytest.mark.campaign, pytest.mark.timeout(3600)]


@pytest.fixture
def machine(spark: SparkSession, tmp_path: Path, kind: str, store: str) -> Iterator[Machine]:
    with settings(spark, store):
        (tmp_path / "machine").mkdir()
        yield Machine(tmp_path / "machine", tmp_path / "source", kind)


@pytest.mark.parametrize(("kind", "store"), CHOSEN)
def test_it_is_taken_back_restored_forked_and_compared(spark: SparkSession, tmp_path: Path, machine: Machine) -> None:
    print(f"PENSTOCK_SEED={SEED}")
    machine.feed(max(DEPTHS) + 3)
    file = machine.write("pipeline")
    newest = machine.run("pipeline")
    machine.assert_exact("pipeline", machine.expected(spark))
    for depth in DEPTHS:
        machine.penstock("rewind", file, "--to-batch", str(newest - depth), "--yes")
        machine.penstock("checkpoint", "verify", file)
        machine.penstock("verify", file)
        machine.feed(1)  # without input Spark does not run again what came without input: it is not planned any more
        # the last time in larger batches, which are other ones than those that were taken back
        size = 10 if depth == DEPTHS[-1] else 1
        newest = machine.run("pipeline", *(f"--set=sources.{name}.options.maxFilesPerTrigger={size}" for name in machine.folders))
        machine.assert_exact("pipeline", machine.expected(spark))
    restore_and_fork(spark, machine, backup=tmp_path / "backup")
    lose_and_rebuild(spark, machine, backup=tmp_path / "backup")


def restore_and_fork(spark: SparkSession, machine: Machine, *, backup: Path) -> None:
    """Savepoints on another disk; a copy of the machine's files of a batch later, which is all that is left of them."""
    save(machine, "early", backup)
    machine.feed(1)
    newest = machine.run("pipeline")
    save(machine, "late", backup)
    at_savepoint = machine.table("pipeline")
    copy = Path(shutil.copytree(machine.root, machine.root.with_name("copy")))
    machine.feed(2)
    machine.write("shadow")
    machine.penstock("savepoint", "fork", "pipeline.yaml", "late", "shadow.yaml", "--to", str(backup), "--yes")
    assert machine.run("shadow") == machine.run("pipeline")
    machine.assert_exact("shadow", machine.table("pipeline") - at_savepoint)
    machine.penstock("compare", "pipeline.yaml", "shadow.yaml", "--from-batch", str(newest + 1))
    shutil.rmtree(machine.root)
    copy.rename(machine.root)
    machine.penstock("savepoint", "restore", "pipeline.yaml", "early", "--to", str(backup), "--yes")
    machine.penstock("verify", "pipeline.yaml")
    machine.run("pipeline")
    machine.assert_exact("pipeline", machine.expected(spark))


def lose_and_rebuild(spark: SparkSession, machine: Machine, *, backup: Path) -> None:
    """The checkpoint is lost some batches behind a savepoint."""
    machine.feed(1)
    machine.run("pipeline")
    save(machine, "last", backup)
    machine.feed(3)
    machine.run("pipeline")
    at_loss = machine.table("pipeline")
    shutil.rmtree(machine.root / "pipeline" / "checkpoint")
    machine.penstock("checkpoint", "rebuild", "pipeline.yaml", "--to", str(backup), "--yes")
    machine.penstock("checkpoint", "verify", "pipeline.yaml")
    assert machine.table("pipeline") == at_loss
    machine.feed(2)
    machine.run("pipeline")
    machine.assert_exact("pipeline", machine.expected(spark))


def save(machine: Machine, name: str, backup: Path) -> None:
    machine.penstock("savepoint", "create", "pipeline.yaml", name, "--to", str(backup))
