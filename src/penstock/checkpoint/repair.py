"""Changes Spark's checkpoint where Spark cannot continue otherwise. Only the newest generation may, after its fence.

- `remove_unwritten_start` removes what a kill left of the first entry of the offset log.
- `move_offsets` sets where a Kafka source continues after a gap that the user accepted. Spark has no way to express it: it
  reads a topic that was created again from the offset where the old one was left. Entries are replaced as a whole, and their
  originals are copied to `<checkpoint>/moved-<nonce>/`.
"""

import json
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from penstock.blob.url import is_blob
from penstock.checkpoint.entries import NO_OFFSET, OffsetsEntry, Unreadable, entry_ids, parse_offsets
from penstock.checkpoint.spark_checkpoint import SparkCheckpoint
from penstock.core.kafka_offset import moved
from penstock.core.model import BatchId, SourceName, new_nonce
from penstock.errors import Failed, Refused, Retryable
from penstock.support.filesystem_errors import translate_os_errors
from penstock.support.private_files import make_private_directory, sync_directory

Moves = Mapping[SourceName, Mapping[str, Mapping[int, int]]]
"""For each source and topic: all partitions, each with the first offset to read."""

_IN_THE_MAKING = re.compile(r"\.\.?0\.[0-9a-f-]{36}\.tmp(\.crc)?")
"""Temporary file that Spark renames to `offsets/0`, and its Hadoop checksum."""


def remove_unwritten_start(checkpoint: SparkCheckpoint) -> None:
    """Remove the temporary files of a driver that was killed while Spark wrote `offsets/0`. No effect once a batch is planned.

    Spark 4.1 and newer refuse to start with such a file, as STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY
    (`spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart`). Safe to repeat. Raises Retryable, Failed.
    """
    names = checkpoint.files.names("offsets")
    if entry_ids(names):
        return
    for name in names:
        if _IN_THE_MAKING.fullmatch(name):
            checkpoint.files.delete(f"offsets/{name}")


@dataclass(frozen=True, slots=True, kw_only=True)
class NewestEntries:
    """The entries of the offset log that a move replaces, and which batch was planned and committed last, as they were read."""

    planned: BatchId
    committed: BatchId | None
    keys: Mapping[SourceName, tuple[str, ...]]
    content: Mapping[BatchId, bytes]


def read_newest_entries(checkpoint: SparkCheckpoint, planned: BatchId, names: Sequence[SourceName]) -> NewestEntries:
    """Return what `move_offsets` replaces. `planned` is the newest planned batch; `names` are those of its sources.

    Read before the ledger is asked whether a newer run exists: what that one changes afterwards differs from what is returned.
    Raises Retryable, CheckpointDamaged, SourcesChanged.
    """
    committed = checkpoint.latest_commit_id()
    changed = [planned] if committed == planned else [BatchId(planned - 1), planned]
    return NewestEntries(
        planned=planned,
        committed=committed,
        keys=checkpoint.keys(planned, names),
        content={batch_id: _content(checkpoint, batch_id) for batch_id in changed},
    )


def move_offsets(checkpoint: SparkCheckpoint, entries: NewestEntries, moves: Moves) -> None:
    """Make the next batch start at `moves`. A batch that is planned and not committed reads nothing of these topics.

    Safe to repeat. Raises Retryable if another run changed the checkpoint since `entries` were read, Refused for a checkpoint in
    a store, Failed.
    """
    if is_blob(checkpoint.location):
        raise Refused(
            f"The checkpoint {checkpoint.location} is in a store, where Penstock does not change it.",
            remedy="Copy it into a directory (`checkpoint:`), start once from there, and put it back.",
        )
    root = Path(checkpoint.location)
    kept = root / f"moved-{new_nonce()}"
    keys = {key: moves[name] for name, name_keys in entries.keys.items() if name in moves for key in name_keys}
    with translate_os_errors(
        Failed, f"The checkpoint {root} cannot be moved behind the gap", then=", then start again: the rest is done then."
    ):
        make_private_directory(kept)
        for batch_id, content in entries.content.items():
            _write(kept / str(batch_id), content)
        sync_directory(kept)
        sync_directory(root)
        for batch_id, content in entries.content.items():
            _require_unchanged(checkpoint, entries, batch_id)
            _replace(root / "offsets", batch_id, _moved(content.decode(), keys))


def entries_before_moves(checkpoint: SparkCheckpoint, batch_id: BatchId) -> Sequence[OffsetsEntry]:
    """Return what `offsets/<batch_id>` was each time before `move_offsets` replaced it, in no order."""
    if is_blob(checkpoint.location):
        return []
    found = []
    for path in Path(checkpoint.location).glob(f"moved-*/{batch_id}"):
        with suppress(Unreadable):  # the copy was not finished, so nothing was replaced yet
            found.append(parse_offsets(path.read_bytes()))
    return found


def _require_unchanged(checkpoint: SparkCheckpoint, entries: NewestEntries, batch_id: BatchId) -> None:
    """Raise Retryable if another run planned or committed a batch since `entries` were read, or replaced entry `batch_id`."""
    planned, committed = checkpoint.latest_offsets_id(), checkpoint.latest_commit_id()
    if (planned, committed) != (entries.planned, entries.committed):
        raise _changed_meanwhile(
            checkpoint,
            f"the newest planned and committed batches were {entries.planned} and {_number(entries.committed)}, now they are "
            f"{_number(planned)} and {_number(committed)}",
        )
    if _content(checkpoint, batch_id) != entries.content[batch_id]:
        raise _changed_meanwhile(checkpoint, f"offsets/{batch_id} is not the entry that was read")


def _content(checkpoint: SparkCheckpoint, batch_id: BatchId) -> bytes:
    data = checkpoint.files.read(f"offsets/{batch_id}")
    if data is None:
        raise _changed_meanwhile(checkpoint, f"offsets/{batch_id} is gone")
    return data


def _changed_meanwhile(checkpoint: SparkCheckpoint, what: str) -> Retryable:
    return Retryable(
        f"Another run changed the checkpoint {checkpoint.location} while this one was about to move it behind a gap: {what}.",
        remedy="Start again, unless that run of the pipeline is alive: then it goes on, and this one is not needed.",
    )


def _number(batch_id: BatchId | None) -> str:
    return "none" if batch_id is None else str(batch_id)


def _replace(folder: Path, batch_id: BatchId, text: str) -> None:
    hidden = folder / f".moved-{batch_id}"
    _write(hidden, text.encode())
    (folder / f".{batch_id}.crc").unlink(missing_ok=True)
    hidden.replace(folder / str(batch_id))
    sync_directory(folder)


def _moved(text: str, keys: Mapping[str, Mapping[str, Mapping[int, int]]]) -> str:
    version, metadata, *lines = text.rstrip("\n").split("\n")
    named = version.strip() != "v1"
    for number, line in enumerate(lines):
        key, _, offset = line.partition(":") if named else (str(number), "", line)
        if key in keys and offset != NO_OFFSET:
            changed = json.dumps(moved(json.loads(offset), keys[key]), separators=(",", ":"))
            lines[number] = f"{key}:{changed}" if named else changed
    return "\n".join([version, metadata, *lines])


def _write(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
