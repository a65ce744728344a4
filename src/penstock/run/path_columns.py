"""Columns of an input path (`month=7`) that were not known when the query was opened.

Spark matches the columns of a batch with those of the query by their place. It finds columns of the path when it lists the files,
and moves them behind all others: if the first such directory comes later than the query, and the schema has its column elsewhere,
the values of one column are taken for those of another. Observed with Spark 4.3. A new start lists the directory again.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from penstock.core.topics import InputFile
from penstock.errors import Retryable


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRelation:
    """A directory whose files a query reads, with the columns in the order in which Spark opened them."""

    path: str
    columns: tuple[str, ...]


def require_columns_of_paths_known(files: Iterable[InputFile], opened: Callable[[], Sequence[FileRelation]]) -> None:
    """Raise Retryable if Spark would take values of one column for those of another. `opened` is asked only if it can be."""
    keyed = [path for file in files if "=" in (path := _path(file.path))]
    for one in opened() if keyed else ():
        for path in keyed:
            keys = _keys(path, below=_path(one.path))
            columns = [column.lower() for column in one.columns]
            if keys and set(keys) <= set(columns) and columns[-len(keys) :] != keys:
                raise _mixed_up(path, keys)


def _mixed_up(path: str, keys: Sequence[str]) -> Retryable:
    return Retryable(
        f"The directory of {path} came after the query had begun, and Spark would put {', '.join(keys)} into other columns.",
        remedy="Start again: Spark knows it then. Name the columns in the transform's SELECT, or write those of the path last in "
        "`schema`, in the order of the path.",
    )


def _path(url: str) -> str:
    parts = urlsplit(url)
    return unquote(parts.path) if parts.scheme else os.path.abspath(url)  # noqa: PTH100 - not only local paths


def _keys(path: str, *, below: str) -> list[str]:
    root = below.rstrip("/") + "/"
    if not path.startswith(root):
        return []
    return [name.partition("=")[0].lower() for name in path.removeprefix(root).split("/")[:-1] if "=" in name]
