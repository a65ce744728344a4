"""One local Spark session for all tests of this folder."""

import os
import sys
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.killed import kills_raise
from tests.memory import tmp_path
from tests.servers.kafka import connector

__all__ = ["kills_raise", "spark", "tmp_path"]


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = (
        SparkSession.builder.master("local[2]")
        .appName("penstock-tests")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.streaming.ui.enabled", "false")
        .config("spark.log.level", "OFF")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.jars", ",".join(map(str, connector())))
        .getOrCreate()
    )
    yield session
    session.stop()
