"""A real query goes on from a copy of its checkpoint exactly, though the copy was made while it ran."""

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from penstock.checkpoint.copying import copy_checkpoint
from penstock.checkpoint.files import LocalFiles
from penstock.checkpoint.verification import verify_files
from tests.spark.streams import numbers, put, run


def test_a_query_goes_on_from_a_copy_that_was_made_while_it_ran(spark: SparkSession, tmp_path: Path) -> None:
    """Deduplication: a row that was delivered before the copy comes once more, and state that is not there would deliver it."""
    for number in range(6):
        put(tmp_path / "in", f"{number}.csv", number + 1, 0)
    first: list[tuple[int, int]] = []
    copied: list[int] = []

    def deliver(rows: DataFrame, batch_id: int) -> None:
        first.extend((batch_id, row["n"]) for row in rows.collect())
        if batch_id == 3:
            # offsets/3 and the state of batch 3 are there, commits/3 is not
            copied.append(copy_checkpoint(LocalFiles(tmp_path / "c"), LocalFiles(tmp_path / "copy")).batch_id)

    run(numbers(spark, tmp_path).dropDuplicates(["n"]), tmp_path / "c", deliver)
    assert verify_files(LocalFiles(tmp_path / "c")).findings == ()
    assert verify_files(LocalFiles(tmp_path / "copy")).findings == ()

    second: list[tuple[int, int]] = []
    query = run(
        numbers(spark, tmp_path).dropDuplicates(["n"]),
        tmp_path / "copy",
        lambda rows, batch_id: second.extend((batch_id, row["n"]) for row in rows.collect()),
    )
    assert query.exception() is None
    assert copied == [2]
    assert sorted(number for _, number in first) == list(range(7))
    assert sorted(number for _, number in second) == sorted(number for batch_id, number in first if batch_id > 2)
    assert [batch_id for batch_id, _ in second] == [3, 4, 5]
