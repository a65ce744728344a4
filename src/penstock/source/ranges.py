"""Reads a source once more for the offsets of one batch, as a table instead of a stream."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol
from urllib.parse import unquote, urlsplit

from penstock.core.model import OffsetRange
from penstock.errors import Refused
from penstock.source.guarantee import is_file_format
from penstock.spec.source import Source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from penstock.checkpoint.source_log import InputFile

_PATTERNS = frozenset("*?[]{}\\")
_LITERAL_PATHS = {"__globPaths__": "false"}
"""Spark's own option by which it takes paths as they are, as its file source does for the files that it found."""


class ReadsRange(Protocol):
    """A source that can be read again by the offsets of a batch."""

    def rows(self, spark: "SparkSession", offsets: OffsetRange, files: "Sequence[InputFile]") -> "DataFrame":
        """Return the rows of one batch, with the columns of the stream. `files`: the input files, if the source has such."""
        ...


class FileRange:
    """The `ReadsRange` of a source of files. `schema` has all columns of the stream, those of the path included."""

    def __init__(self, source: Source, schema: "StructType") -> None:
        self._source, self._schema = source, schema

    def rows(self, spark: "SparkSession", offsets: OffsetRange, files: "Sequence[InputFile]") -> "DataFrame":  # noqa: ARG002
        """Return the rows of `files`, which must be there."""
        if not files:
            return spark.createDataFrame([], self._schema)
        reader = spark.read.options(**self._options()).schema(self._schema).format(self._source.format or "")
        return reader.load([_plain(file.path) for file in files])

    def _options(self) -> Mapping[str, str]:
        path = self._source.path or ""
        below = {} if _PATTERNS & set(path) else {"basePath": path}  # as Spark's own file source
        return {**self._source.options, **below, **_LITERAL_PATHS}


def _plain(url: str) -> str:
    """Return the URL of a file as Spark's readers take it: Spark logs it percent-encoded."""
    parts = urlsplit(url)
    return unquote(parts.path) if parts.scheme in {"", "file"} else f"{parts.scheme}://{parts.netloc}{unquote(parts.path)}"


def range_of(name: str, source: Source, schema: "StructType") -> ReadsRange:
    """Return what reads batches of a source again. Raises Refused for a source that cannot be read by offsets."""
    if source.format is not None and is_file_format(source.format):
        return FileRange(source, schema)
    raise Refused(
        f"Source {name!r} ({source.format or f'table {source.table}'}) cannot be read again batch by batch.",
        remedy="Let the sink begin with the next batch, and load the past into it by a program of your own.",
    )
