"""What Penstock knows of Spark's streaming formats by name, and of a source that was opened outside Penstock."""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.errors import Usage
from penstock.spec.source import FILE_FORMATS

BINARY_FILE_SCHEMA = "path STRING, modificationTime TIMESTAMP, length LONG, content BINARY"
"""The only columns that `binaryFile` has; Spark requires them to be stated for a stream all the same."""

INFERENCE_CONF = "spark.sql.streaming.schemaInference"

_FIXED_COLUMNS = frozenset({"binaryfile", "text"})
_OTHERS = ("rate", "rate-micro-batch", "kafka", "delta", "iceberg", "socket", "kinesis", "eventhubs")
_PROVIDERS: Mapping[str, str] = {
    "textsocketsourceprovider": "socket",
    "textsocket": "socket",
    "ratestreamprovider": "rate",
    "ratepermicrobatchprovider": "rate-micro-batch",
    "kafkasourceprovider": "kafka",
    "deltadatasource": "delta",
}
_CLASS_OF_FILES = ("fileformat", "datasourcev2")


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


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedSource:
    """One source. `format` is what Spark was given: a short name or a class name, `table` for a table. `paths`: of file sources.

    `options` is None where the plan does not show them. They can hold credentials, so they are looked at and never printed.
    """

    format: str
    options: Mapping[str, str] | None = field(repr=False)
    paths: tuple[str, ...] = ()


def short_format(name: str) -> str:
    """Return Spark's short name, in lower case, of a format given by its short name or by the name of its class."""
    kind = name.rpartition(".")[2].lower().rstrip("$")
    for ending in _CLASS_OF_FILES:
        if "." in name and kind.endswith(ending):
            return kind.removesuffix(ending)
    return _PROVIDERS.get(kind, name.lower())
