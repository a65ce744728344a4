"""Why a replayed batch of a stateful query is executed although its rows are delivered already."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from penstock.transform.apply import execute_as_noop
from tests.spark.streams import put, run

pytestmark = pytest.mark.spark

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
VALIDATION = "spark.sql.streaming.stateStore.commitValidation.enabled"


class Deliveries:
    """A sink that remembers what it was given, and does something else with the batches in `instead`."""

    def __init__(self) -> None:
        self.rows: Counter[tuple[object, ...]] = Counter()

    def run(self, frame: DataFrame, checkpoint: Path, **instead: Callable[[DataFrame], object]) -> None:
        def deliver(rows: DataFrame, batch_id: int) -> None:
            act = instead.get(f"batch_{batch_id}")
            if act is None:
                self.rows.update(tuple(row) for row in rows.collect())
            else:
                act(rows)

        run(frame, checkpoint, deliver)


@pytest.fixture
def incoming(tmp_path: Path) -> Path:
    return tmp_path / "in"


def deduplicated(spark: SparkSession, incoming: Path) -> DataFrame:
    return spark.readStream.schema("n INT").csv(str(incoming)).dropDuplicates(["n"])


def after_a_crash_that_lost_state(spark: SparkSession, incoming: Path, checkpoint: Path) -> Deliveries:
    """What a driver leaves that dies after the sink took batch 1, before its state and `commits/1` were written."""
    sink = Deliveries()
    put(incoming, "0.csv", 1)
    sink.run(deduplicated(spark, incoming), checkpoint)
    put(incoming, "1.csv", 2, 2, 3)
    sink.run(deduplicated(spark, incoming), checkpoint)
    lost = [*checkpoint.glob("commits/1"), *checkpoint.glob("commits/.1.crc")]
    lost += [*checkpoint.glob("state/0/*/2.*"), *checkpoint.glob("state/0/*/.2.*")]
    assert len(lost) > 4
    for file in lost:
        file.unlink()
    return sink


@pytest.fixture(params=["HDFSBackedStateStoreProvider", "RocksDBStateStoreProvider"])
def provider(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[str]:
    spark.conf.set(PROVIDER, f"org.apache.spark.sql.execution.streaming.state.{request.param}")
    yield request.param
    spark.conf.unset(PROVIDER)


@pytest.fixture
def validation(spark: SparkSession) -> Iterator[Callable[[str], None]]:
    yield lambda value: spark.conf.set(VALIDATION, value)
    spark.conf.unset(VALIDATION)


@pytest.mark.usefixtures("provider")
def test_executing_the_replay_as_noop_restores_the_state(spark: SparkSession, incoming: Path, tmp_path: Path) -> None:
    sink = after_a_crash_that_lost_state(spark, incoming, tmp_path / "c")

    sink.run(deduplicated(spark, incoming), tmp_path / "c", batch_1=execute_as_noop)
    put(incoming, "2.csv", 1, 2, 3, 4)
    sink.run(deduplicated(spark, incoming), tmp_path / "c")

    assert sink.rows == Counter([(1,), (2,), (3,), (4,)])


@pytest.mark.usefixtures("provider")
@pytest.mark.parametrize("validated", ["true", "false"])
def test_skipping_the_replay_ruins_the_checkpoint(
    spark: SparkSession, incoming: Path, tmp_path: Path, validation: Callable[[str], None], validated: str
) -> None:
    """Spark's own check, where it has one, comes after `commits/1` was written."""
    sink = after_a_crash_that_lost_state(spark, incoming, tmp_path / "c")
    validation(validated)

    with pytest.raises(StreamingQueryException) if validated == "true" else nullcontext():
        sink.run(deduplicated(spark, incoming), tmp_path / "c", batch_1=lambda rows: None)
    assert (tmp_path / "c/commits/1").exists()
    put(incoming, "2.csv", 4)

    with pytest.raises(StreamingQueryException, match="CANNOT_LOAD_STATE_STORE"):
        sink.run(deduplicated(spark, incoming), tmp_path / "c")


def test_part_of_the_replay_is_not_enough(spark: SparkSession, incoming: Path, tmp_path: Path) -> None:
    sink = after_a_crash_that_lost_state(spark, incoming, tmp_path / "c")

    with pytest.raises(StreamingQueryException):
        sink.run(deduplicated(spark, incoming), tmp_path / "c", batch_1=lambda rows: rows.limit(1).collect())
