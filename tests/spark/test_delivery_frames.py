"""How far it is to read from Spark's call to the rename that shows a file."""

import traceback
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import penstock
from penstock import Delivery, Parquet
from penstock.sink.parquet.directory import rename
from penstock.sink.parquet.directory.rename import rename_or_refuse
from tests.spark.streams import numbers, put

pytestmark = pytest.mark.spark

MOST = 12


def test_few_frames_of_ours_lie_between_sparks_call_and_the_rename(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = str(Path(penstock.__file__).parent)
    stacks: list[list[str]] = []

    def seen(source: Path, target: Path) -> bool:
        frames = [frame for frame in traceback.extract_stack() if frame.filename.startswith(ours)]
        stacks.append([f"{Path(frame.filename).relative_to(ours)}: {frame.name}" for frame in frames])
        return rename_or_refuse(source, target)

    monkeypatch.setattr(rename, "rename_or_refuse", seen)
    delivery = Delivery("frames", home=tmp_path / "home", sinks={"lake": Parquet(accounts={"all": tmp_path / "lake"})})
    put(tmp_path / "in", "0.csv", 1)
    writer = numbers(spark, tmp_path).writeStream.trigger(availableNow=True)
    delivery.start(writer).awaitTermination()
    (stack,) = (each for each in stacks if each[-1].endswith(": move"))
    assert len(stack) <= MOST, "\n".join(stack)
