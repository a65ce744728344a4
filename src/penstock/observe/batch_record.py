"""What a driver measured of its batches, as JSON lines in the pipeline's home: what a ledger does not hold.

A line is of one batch and comes from one of two: the delivery (`DeliveryRecord`), or Spark (`SparkRecord`), which tells a moment
later. Nothing relies on them. They are appended if that is possible, never forced to the disk, and two files are kept: the
newest, and the full one before it.
"""

import json
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from penstock.core.model import BatchId, Generation, SinkName
from penstock.support.private_files import open_private

FILE = "batches.jsonl"
FULL_BYTES = 8_000_000
"""At this size a new file is begun. It holds some 10,000 batches, as the ledger does."""
TAIL_BYTES = (64_000, 512_000)
"""How much of the end of the newest file is looked at first, and then: what `watch` shows of a few sinks is in the first."""
_FORMAT, _VERSION = "penstock.batch", 1


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryRecord:
    """A batch as the delivery measured it. `at_ms`: when every sink showed it. `sink_ms`: how long each publication took.

    `already` and `recovered` are as in `BatchProgress`. `path`: where its rows were staged.
    """

    generation: Generation
    batch_id: BatchId
    at_ms: int
    rows_read: int | None = None
    stage_ms: int = 0
    decide_ms: int = 0
    publish_ms: int = 0
    sink_ms: Mapping[SinkName, int] = field(default_factory=dict)
    already: bool = False
    recovered: bool = False
    path: str = "none"
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkRecord:
    """A batch as Spark measured it. `began_ms`: when its trigger fired.

    `fetch_ms`: it asked the sources for their end offsets. `offset_log_ms`: it wrote them to the offset log. `plan_ms`: it
    planned the batch. `execute_ms`: the delivery ran. `commit_log_ms`: it wrote the commit log. `state_rows` and `state_bytes`
    are None for a query that keeps no state. `watermark` is Spark's, in ISO 8601.
    """

    generation: Generation
    batch_id: BatchId
    began_ms: int
    fetch_ms: int
    offset_log_ms: int
    plan_ms: int
    execute_ms: int
    commit_log_ms: int
    total_ms: int
    state_rows: int | None = None
    state_bytes: int | None = None
    watermark: str | None = None


Record: TypeAlias = DeliveryRecord | SparkRecord
_KINDS: Mapping[str, type[Record]] = {"delivery": DeliveryRecord, "spark": SparkRecord}
_NAMES: Mapping[type[Record], str] = {kind: name for name, kind in _KINDS.items()}
_BATCH = re.compile(rb'"batch_id":(\d+)')


class BatchRecords:
    """Writes the records of one pipeline below its home. Any thread may write: a line is one append."""

    def __init__(self, home: str) -> None:
        self._path = Path(home) / FILE

    def write(self, record: Record) -> None:
        """Append one record, unless the home is not a directory that can be written to."""
        values = {"format": _FORMAT, "version": _VERSION, "kind": _NAMES[type(record)], **asdict(record)}
        line = json.dumps(values, separators=(",", ":")).encode() + b"\n"
        with suppress(OSError):
            with open_private(self._path, "ab") as file:
                file.write(line)
                size_bytes = file.tell()
            if size_bytes >= FULL_BYTES:
                self._path.replace(_older(self._path))


def records_of(home: str, batches: Collection[BatchId]) -> Sequence[Record]:
    """Return what was noted of `batches`, oldest first; nothing of those that are older than what is kept.

    Reads the end of the newest file, and everything only where that does not reach back to these batches.
    """
    wanted, path = frozenset(batches), Path(home) / FILE
    if not wanted:
        return ()
    for last_bytes in TAIL_BYTES:
        newest = list(_lines(path, last_bytes=last_bytes))[1:]  # of the first line there only a part may be left
        if min((batch for line in newest if (batch := _batch_of(line)) is not None), default=min(wanted)) < min(wanted):
            return _of_batches(newest, wanted)
    return _of_batches((line for file in (_older(path), path) for line in _lines(file)), wanted)


def _older(path: Path) -> Path:
    return path.with_name(f"{path.stem}.1{path.suffix}")


def _batch_of(line: bytes) -> int | None:
    found = _BATCH.search(line)
    return None if found is None else int(found[1])


def _of_batches(lines: Iterable[bytes], wanted: Collection[int]) -> Sequence[Record]:
    return list(_records(line for line in lines if _batch_of(line) in wanted))


def _lines(path: Path, *, last_bytes: int | None = None) -> Iterator[bytes]:
    """Yield the lines of a file, or of its end."""
    with suppress(OSError), path.open("rb") as file:
        if last_bytes is not None:
            file.seek(max(0, file.seek(0, os.SEEK_END) - last_bytes))
        yield from file


def _records(lines: Iterable[bytes]) -> Iterator[Record]:
    """Yield what this version can read: a line may be cut off, or of a newer version."""
    for line in lines:
        with suppress(ValueError, KeyError, TypeError, AttributeError):
            values: dict[str, Any] = json.loads(line)
            if values.pop("format") == _FORMAT and values.pop("version") == _VERSION:
                kind = _KINDS[values.pop("kind")]
                if "warnings" in values:
                    values["warnings"] = tuple(values["warnings"])
                yield kind(**values)
