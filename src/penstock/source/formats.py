"""What Penstock knows of Spark's streaming formats by name."""

import difflib

from penstock.errors import Usage
from penstock.spec.source import FILE_FORMATS

BINARY_FILE_SCHEMA = "path STRING, modificationTime TIMESTAMP, length LONG, content BINARY"
"""The only columns that `binaryFile` has; a stream of it must still be told them."""

INFERENCE_CONF = "spark.sql.streaming.schemaInference"

_FIXED_COLUMNS = frozenset({"binaryfile", "text"})
_OTHERS = ("rate", "rate-micro-batch", "kafka", "delta", "iceberg", "socket", "kinesis", "eventhubs")


def is_file_format(name: str) -> bool:
    """Whether `name` is one of Spark's file formats. Spark does not mind case."""
    return name.lower() in {known.lower() for known in FILE_FORMATS}


def needs_schema(name: str) -> bool:
    """Whether Spark must be told the columns of a stream of this format."""
    return is_file_format(name) and name.lower() not in _FIXED_COLUMNS


def unknown_format(source: str, name: str) -> Usage:
    """The error about a format that no installed data source has."""
    known = [*sorted(FILE_FORMATS), *_OTHERS]
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    guess = f"Did you mean {close[0]}? " if close else ""
    return Usage(
        f"sources.{source}.format {name} is not known to this Spark.",
        remedy=f"{guess}Known are {', '.join(known)}; for any other put its jar or Python package into the session.",
    )
