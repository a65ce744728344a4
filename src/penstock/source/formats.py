"""What Penstock knows of Spark's streaming formats by name."""

import difflib

from penstock.errors import Usage
from penstock.spec.source import FILE_FORMATS

BINARY_FILE_SCHEMA = "path STRING, modificationTime TIMESTAMP, length LONG, content BINARY"
"""The only columns that `binaryFile` has; Spark requires them to be stated for a stream all the same."""

INFERENCE_CONF = "spark.sql.streaming.schemaInference"

_FIXED_COLUMNS = frozenset({"binaryfile", "text"})
_OTHERS = ("rate", "rate-micro-batch", "kafka", "delta", "iceberg", "socket", "kinesis", "eventhubs")


def is_file_format(name: str) -> bool:
    """Return whether `name` is one of Spark's file formats, in any case."""
    return name.lower() in {known.lower() for known in FILE_FORMATS}


def needs_schema(name: str) -> bool:
    """Return whether Spark requires the columns of a stream of this format to be stated."""
    return is_file_format(name) and name.lower() not in _FIXED_COLUMNS


def unknown_format(source: str, name: str) -> Usage:
    """Return the error about a format that no installed data source has."""
    known = [*sorted(FILE_FORMATS), *_OTHERS]
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    guess = f"Did you mean {close[0]}? " if close else ""
    return Usage(
        f"sources.{source}.format {name} is not known to this Spark.",
        remedy=f"{guess}Known are {', '.join(known)}; for any other put its jar or Python package into the session.",
    )
