"""Stateful queries that emit in batches without input, and die between staging, decision and publication: exact."""

import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.checkpoint.spark_checkpoint import SparkCheckpoint
from penstock.core import faults
from penstock.core.model import SourceName
from penstock.errors import PenstockError
from tests.crash.commandline import penstock
from tests.spark import page, stateful
from tests.spark.stateful import PROVIDER, ROCKSDB, Build
from tests.spark.streams import forget_commit, put, run
from tests.spark.target import Rows, Target

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

POINTS = ("ledger.sqlite_commit=kill@2", "rename.move=kill@1", "sqlite.commit=kill@2")
"""Staged and not decided; decided and not in the accounts; in the transaction of the table, after one batch was recovered."""

PHASES = 2
"""How often files come and are delivered to the end, which is a batch without input."""


PIPELINE = """\
pipeline: windows
home: ./home
spark:
  master: local[2]
  conf: {spark.ui.enabled: false, spark.sql.shuffle.partitions: 2, spark.log.level: "OFF", spark.sql.session.timeZone: UTC}
sources:
  events:
    format: csv
    path: ./in
    schema: n INT, at TIMESTAMP
    options: {maxFilesPerTrigger: 1}
    watermark: {column: at, delay: 0s}
transform: {sql: "SELECT n, count(*) AS many FROM events GROUP BY window(at, '1 minute'), n"}
sinks:
  table: {type: sqlite, url: "sqlite:///warehouse.db", table: numbers}
trigger: {available_now: true}
"""


@contextmanager
def conf(spark: SparkSession, **settings: str) -> Iterator[None]:
    before = {name: spark.conf.get(name) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


class Died(BaseException):
    """In place of SIGKILL: nothing of the product is to handle it."""


@pytest.fixture(name="dying")
def _dying(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """With one partition: each has a store of its own to write for every batch, and functions a Python worker to start."""

    def die() -> None:
        raise Died

    monkeypatch.setattr(faults, "_kill", die)
    with conf(spark, **{"spark.sql.shuffle.partitions": "1"}):
        yield
    faults.arm("")


def feed(root: Path, phase: int) -> None:
    """A file of one minute and of what ends it; one event in all of them, and few with a partner."""
    lines = [f"{n},2024-01-01T00:{phase:02d}:{second:02d}Z" for n, second in [(phase, 1), (phase, 2), (9, 5)]]
    lines.append(f"{phase},2024-01-01T00:{phase + 1:02d}:00Z")
    for folder, rows in (("in", lines), ("right", lines[1:2])):
        put(root / folder, f"{phase}.csv", *rows)


def expected_of(spark: SparkSession, build: Build, root: Path) -> tuple[Rows, Rows]:
    """All rows that Spark alone delivers, and those of batches without input."""
    every, without_input = Counter[tuple[object, ...]](), Counter[tuple[object, ...]]()
    for phase in range(PHASES):
        feed(root, phase)
        batches: dict[int, Rows] = {}
        query = run(
            build(spark, root),
            root / "checkpoint",
            lambda rows, number, batches=batches: batches.update({number: Counter(map(tuple, rows.collect()))}),
        )
        empty = {progress["batchId"] for progress in query.recentProgress if progress["numInputRows"] == 0}
        every += sum(batches.values(), Counter())
        without_input += sum((rows for number, rows in batches.items() if number in empty), Counter())
    return every, without_input


def is_without_input(target: Target, sources: tuple[str, ...]) -> bool:
    """Whether the newest batch that Spark planned reads nothing."""
    checkpoint = SparkCheckpoint(target.checkpoint)
    newest = checkpoint.latest_offsets_id()
    assert newest is not None
    batch = checkpoint.batch(newest, [SourceName(name) for name in sources])
    return all(offsets.start == offsets.end for offsets in batch.offsets)


@dataclass
class Dying:
    """A delivery that dies in its next batch again and again, at one point after the other."""

    spark: SparkSession
    build: Build
    target: Target
    sources: tuple[str, ...]
    died_without_input: set[str] = field(default_factory=set)
    """The points at which a batch without input died."""

    def to_the_end(self, points: Iterator[str]) -> None:
        """Until a start meets no batch in which it can die."""
        while not self.deliver(point := next(points)):
            if is_without_input(self.target, self.sources):
                self.died_without_input.add(point)

    def deliver(self, armed: str = "") -> bool:
        """Whether it came to the end."""
        faults.arm(armed)
        try:
            self.target.deliver(self.build(self.spark, self.target.root), sources=self.sources)
        except (PenstockError, Died):
            if not armed:
                raise
            return False
        finally:
            faults.arm("")
        return True

    def forget_end(self) -> None:
        """What a driver leaves that dies after a batch without input was published, before Spark logged its end and its state."""
        newest = max(int(entry.name) for entry in (self.target.checkpoint / "commits").iterdir() if entry.name.isdigit())
        forget_commit(self.target.checkpoint, newest)
        for pattern in (f"state/*/*/{newest + 1}.*", f"state/*/*/.{newest + 1}.*", f"state/*/*/*/{newest + 1}.*"):
            for file in self.target.checkpoint.glob(pattern):
                file.unlink()


def survive(spark: SparkSession, root: Path, build: Build, *, sources: tuple[str, ...] = ("in",)) -> None:
    """Compare what is delivered by starts that die with what Spark alone delivers of the same files."""
    expected, without_input = expected_of(spark, build, root / "plain")
    assert without_input, "the query shall emit rows in batches without input"
    dying, points = Dying(spark, build, Target(root / "dying"), sources), cycle(POINTS)
    for phase in range(PHASES):
        feed(dying.target.root, phase)
        dying.to_the_end(points)
        dying.forget_end()
        assert dying.deliver()
    assert (dying.target.accounts(), dying.target.rows()) == (expected, expected)
    assert dying.died_without_input
    print(f"batches without input died at {sorted(dying.died_without_input)}")


@pytest.mark.usefixtures("dying")
def test_windows_that_close_without_input(spark: SparkSession, tmp_path: Path) -> None:
    survive(spark, tmp_path, stateful.tumbling)


@pytest.mark.usefixtures("dying")
def test_sessions_that_close_without_input(spark: SparkSession, tmp_path: Path) -> None:
    survive(spark, tmp_path, stateful.sessions)


@pytest.mark.usefixtures("dying")
def test_a_join_that_gives_up_on_partners_without_input(spark: SparkSession, tmp_path: Path) -> None:
    survive(spark, tmp_path, stateful.joined, sources=("in", "right"))


@pytest.mark.usefixtures("dying")
def test_state_that_times_out_without_input(spark: SparkSession, tmp_path: Path) -> None:
    survive(spark, tmp_path, stateful.counted_in_pandas)


@pytest.mark.usefixtures("dying")
@pytest.mark.parametrize("build", [stateful.counted_by_timers, stateful.counted_by_timers_in_pandas])
def test_timers_that_fire_without_input(spark: SparkSession, tmp_path: Path, build: Build) -> None:
    with conf(spark, **{PROVIDER: ROCKSDB}):
        survive(spark, tmp_path, build)


def test_a_driver_that_is_killed_while_it_publishes_what_came_without_input(spark: SparkSession, tmp_path: Path) -> None:
    expected, _ = expected_of(spark, stateful.tumbling, tmp_path / "plain")
    target, file = Target(tmp_path / "killed"), tmp_path / "killed/windows.yaml"
    for phase in range(PHASES):
        feed(target.root, phase)
        file.write_text(PIPELINE)
        if phase == 0:
            killed = page.run(target.root, f"penstock run {file.name}", faults="sqlite.commit=kill@2", forked=True)
            assert killed.returncode == -signal.SIGKILL, killed.stdout + killed.stderr
            assert is_without_input(target, ("events",))
        done = penstock("run", str(file), "--json")
        assert done.code == 0, str(done)
    assert target.rows() == expected
