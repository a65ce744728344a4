"""Parses the columns that a user writes for a source, as DDL or as Spark's JSON."""

import json
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from penstock.errors import Usage
from penstock.spark.error import SparkError, read_spark_error
from penstock.support.secret import scrub, shown_text


def schema_argument(text: str) -> StructType | str:
    """Return the columns as Spark takes them. Raises what parsing JSON raises."""
    return StructType.fromJson(json.loads(text)) if text.lstrip().startswith("{") else text


def parsed_schema(spark: SparkSession, key: str, text: str) -> dict[str, Any]:
    """Return the columns in Spark's JSON. `key`: the setting that holds them. Raises Usage."""
    try:
        return spark.createDataFrame([], schema_argument(text)).schema.jsonValue()
    except Exception as error:
        raise bad_schema(key, text, read_spark_error(scrub(str(error)))) from error


def bad_schema(key: str, text: str, spark_error: SparkError) -> Usage:
    """Return the error that the columns in the setting `key` cannot be parsed."""
    place = f" at character {spark_error.column}" if spark_error.column is not None else ""
    return Usage(
        f"{key} cannot be read{place}: {spark_error.sentence} Found {shown_text(text)[:200]!r}.",
        remedy='Write it as "name TYPE, name TYPE" with types of Spark SQL, or as the JSON that df.schema.json() prints.',
    )
