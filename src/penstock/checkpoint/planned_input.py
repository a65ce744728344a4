"""Reads from the checkpoint how much input Spark planned for a batch, before the batch runs and without asking a source."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.blob.url import is_blob
from penstock.checkpoint.input_listing import InputListing
from penstock.checkpoint.offset_kind import kind_of
from penstock.checkpoint.source_log import InputFile
from penstock.core.model import Batch, OffsetRange, SourceName

_LOOKED_AT = 100
"""Most files of a batch whose sizes are looked up if any of them is in a store."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedInput:
    """Amount of input: records of sources that count them, and bytes of files as stored, compressed or not."""

    records: int = 0
    size_bytes: int = 0

    def __add__(self, other: "PlannedInput") -> "PlannedInput":
        return PlannedInput(records=self.records + other.records, size_bytes=self.size_bytes + other.size_bytes)


def planned_input(
    batch: Batch, files: Mapping[SourceName, Sequence[InputFile]], *, look: InputListing | None = None
) -> PlannedInput | None:
    """Return the input of all sources of `batch`, None if any is unknown. `files` are the input files of its file sources.

    Costs one stat or request per file, and none for many files in a store: such a batch is not small.
    """
    total = PlannedInput()
    for offsets in batch.offsets:
        found = _of_files(files[offsets.source], look or InputListing()) if offsets.source in files else _of_records(offsets)
        if found is None:
            return None
        total += found
    return total


def _of_files(files: Sequence[InputFile], look: InputListing) -> PlannedInput | None:
    if len(files) > _LOOKED_AT and any(is_blob(file.path) for file in files):
        return None
    try:
        sizes = [None if seen is None else seen.size_bytes for seen in look.at(files)]
    except OSError:
        return None
    known = [size for size in sizes if size is not None]
    return PlannedInput(size_bytes=sum(known)) if len(known) == len(sizes) else None


def _of_records(offsets: OffsetRange) -> PlannedInput | None:
    if offsets.end is None or offsets.end == offsets.start:
        return PlannedInput()
    count = _COUNTED.get(kind_of(offsets.end))
    if count is None or offsets.start is None:
        return None
    return PlannedInput(records=count(json.loads(offsets.end)) - count(json.loads(offsets.start)))


def _kafka_position(offset: Any) -> int:
    return sum(position for partitions in offset.values() for position in partitions.values())


_COUNTED: Mapping[str, Callable[[Any], int]] = {
    "rate-micro-batch": lambda offset: int(offset["offset"]),
    "kafka": _kafka_position,
}
