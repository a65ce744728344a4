"""The sources of a pipeline and the paths of file sources, looked at before Spark starts."""

from collections.abc import Mapping
from pathlib import Path

from penstock.errors import Usage
from penstock.spec.source import FILE_FORMATS, Source

_PATTERNS = frozenset("*?[]{}\\")


def path_missing(name: str, source: Source) -> Usage:
    """Return the error for a path that is not there."""
    return Usage(
        f"sources.{name}.path {source.path} does not exist.",
        remedy="Create the directory, or correct the path in the pipeline file.",
    )


def require_any(sources: Mapping[str, Source]) -> None:
    """Raise Usage for a pipeline file without sources, such as one beside a query that code starts."""
    if not sources:
        raise Usage(
            "The pipeline file has no sources, so there is nothing to read.",
            remedy="Add the key sources. A file beside a query that your code starts (`Delivery`) is for `status`, `verify` and "
            "the other commands that only look or repair.",
        )


def require_paths(sources: Mapping[str, Source]) -> None:
    """Raise Usage for a file source whose local path is no directory. Patterns and URLs are Spark's to look up."""
    for name, source in sources.items():
        place = (source.path or "").removeprefix("file://")
        is_plain = place.startswith("/") and not _PATTERNS & set(place) and "%" not in place
        if source.format not in FILE_FORMATS or not is_plain:
            continue
        if not Path(place).exists():
            raise path_missing(name, source)
        if Path(place).is_file():
            raise Usage(
                f"sources.{name}.path {source.path} is a file, expected a directory.",
                remedy="Name the directory that holds it; options: {pathGlobFilter: PATTERN} takes some of its files only.",
            )
