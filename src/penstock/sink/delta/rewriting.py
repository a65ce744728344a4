"""The entry of a Delta log that exchanges files for others with the same rows. The library cannot write it as it must be.

It says of no file that rows changed (`dataChange`), so who follows the table passes over it. But of such an entry the library's
own OPTIMIZE, and its overwriting, take no notice: one that began before removes the same files once more, and its rows come
beside ours. So the entry repeats the table's metadata, as it is. After that every commit is refused that began before: its
writer has to look again.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from penstock.core.model import Json
from penstock.sink.lake.log import Change, TableFile

REWRITTEN_BY: Final = "penstock.rewritten_by"
"""The note with the nonce in the names of the files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewriting:
    """A rewriting of version `read_version`. `metadata` is the table's, as in its log; `modified_ms`: of the new files."""

    change: Change
    read_version: int
    metadata: Mapping[str, Json]
    modified_ms: Mapping[str, int]
    now_ms: int

    def entry(self) -> bytes:
        """Return the content of the log's next file."""
        return "".join(f"{json.dumps(action, separators=(',', ':'))}\n" for action in self._actions()).encode()

    def _actions(self) -> Iterator[Mapping[str, Any]]:
        yield {"commitInfo": self._info()}
        yield {"metaData": self.metadata}
        yield from ({"remove": self._removed(file)} for file in self.change.removed)
        yield from ({"add": self._added(file)} for file in self.change.added)

    def _info(self) -> Mapping[str, Any]:
        return {
            "timestamp": self.now_ms,
            "operation": "OPTIMIZE",
            "operationParameters": {},
            "readVersion": self.read_version,
            "isBlindAppend": False,
            "engineInfo": "penstock",
            REWRITTEN_BY: self.change.written_by,
        }

    def _removed(self, file: TableFile) -> Mapping[str, Any]:
        return {
            "path": file.path,
            "dataChange": False,
            "deletionTimestamp": self.now_ms,
            "extendedFileMetadata": True,
            "partitionValues": file.values,
            "size": file.size_bytes,
        }

    def _added(self, file: TableFile) -> Mapping[str, Any]:
        return {
            "path": file.path,
            "partitionValues": file.values,
            "size": file.size_bytes,
            "modificationTime": self.modified_ms[file.path],
            "dataChange": False,
            "stats": file.statistics,
        }
