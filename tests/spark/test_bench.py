"""Every part of the bench runs on tiny inputs, measures what the aims name, and notices a changed row."""

from functools import partial

import pytest
from bench.__main__ import check
from bench.parts import PARTS
from pyspark.sql import SparkSession

ALONE = {"restart", "failover", "kafka_waiting"}
"""They start processes that each start Spark: `make bench ARGS="--check"` runs them."""


@pytest.mark.parametrize(
    "name", [name for name, part in PARTS.items() if not part.jdbc and not part.servers and name not in ALONE]
)
def test_a_part_runs_and_notices_a_changed_row(spark: SparkSession, name: str) -> None:
    assert check(name, partial(_same, spark)) == 0


def _same(spark: SparkSession, *, cores: int) -> SparkSession:
    return spark
