"""Where the files of a table lie, and the partition values that their decided names tell.

A piece is named as in a table of Hive: `day=2026-01-31/part-….parquet`. The file itself lies in the table's directory, without
the partition's: the values are in the table's list of its files, and no reader has to agree with another on how a path is
escaped. A file that a compaction writes is named `compact-<version>-….parquet`: it becomes a part of the table by the commit that
is this version, or never.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from penstock.core.model import Nonce, Staged
from penstock.sink.parquet.account import Allowance, Upload, UploadArea
from penstock.sink.parquet.layout import NULL, escape, unescape

_COMPACTED: Final = re.compile(r"compact-(\d+)-g\d+-b\d+-p\d+-t\d+-([0-9a-f]{16})-")


@dataclass(frozen=True, slots=True, kw_only=True)
class FlatUploads(UploadArea):
    """The task side of a table's place: files without the directories in their names."""

    place: UploadArea

    def open(self, name: str, *, allowance: Allowance) -> Upload:
        return self.place.open(file_of(name), allowance=allowance)

    def seal(self) -> None:
        self.place.seal()

    def requests_sent(self) -> Mapping[str, int]:
        return self.place.requests_sent()


def file_of(name: str) -> str:
    """Return the path, relative to the table, of the file that was decided as `name`."""
    return name.rpartition("/")[2]


def as_file(piece: Staged) -> Staged:
    """Return the piece under the path of its file."""
    return replace(piece, name=file_of(piece.name))


def partition_values(name: str) -> Mapping[str, str | None]:
    """Return the partition values of a piece as the log holds them: texts by column, None for null."""
    parts = (directory.partition("=") for directory in name.split("/")[:-1])
    return {unescape(column): None if text == NULL else unescape(text) for column, _, text in parts}


def piece_name(file: str, values: Mapping[str, str | None]) -> str:
    """Return the name of the piece whose file is `file`, for partition values in the order of the table's columns."""
    directories = [f"{escape(column)}={NULL if text is None else escape(text)}" for column, text in values.items()]
    return "/".join((*directories, file_of(file)))


def compaction_prefix(version: int) -> str:
    """Return the first part in the names of the files of a compaction that would become this version of the table."""
    return f"compact-{version}"


def compaction_in(name: str) -> tuple[int, Nonce] | None:
    """Return the version that the compaction which wrote the file would become, and its nonce; None for any other file."""
    found = _COMPACTED.match(file_of(name))
    return None if found is None else (int(found[1]), Nonce(found[2]))
