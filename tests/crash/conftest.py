"""The local Spark session of the tests in `tests/spark`, for commands that run in the test's own process."""

from tests.memory import tmp_path
from tests.spark.conftest import spark

__all__ = ["spark", "tmp_path"]
