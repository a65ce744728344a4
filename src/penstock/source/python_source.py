"""Opens a Python data source of Penstock's own as a streaming DataFrame."""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession

from penstock.errors import DependencyMissing
from penstock.source.naming import stream_reader
from penstock.spark.error import lacks_penstock

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSource

_NEEDED = (4, 2)
"""The first version of Spark in which a Python source says what a batch reads."""


def can_read(spark: SparkSession) -> bool:
    """Return whether the Spark of this session has what Penstock's own readers need."""
    found = re.match(r"(\d+)\.(\d+)", spark.version)
    return found is not None and (int(found[1]), int(found[2])) >= _NEEDED


def open_python_source(
    spark: SparkSession, name: str, data_source: "type[DataSource]", options: Mapping[str, str], *, is_read: str, package: str
) -> DataFrame:
    """Return the DataFrame of source `name`, with the alias `name`; nothing is read yet.

    Raises DependencyMissing where Spark's driver lacks Penstock; `is_read` says there how the source is read, `package` what to
    install.
    """
    spark.dataSource.register(data_source)
    try:
        frame = stream_reader(spark, name).format(data_source.name()).options(**options).load().alias(name)
        _ = frame.schema  # Spark Connect reports errors only when it is asked for something
    except Exception as error:
        if lacks_penstock(str(error)):
            raise DependencyMissing(
                f"Source {name!r} {is_read}, and Penstock is not installed where Spark's driver runs.",
                remedy=f"Install it there and on every executor: pip install {package}",
            ) from error
        raise
    return frame
