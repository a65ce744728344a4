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
from pathlib import Path

from penstock.blob.url import is_blob
from penstock.checkpoint.entries import NO_OFFSET, OffsetsEntry, Unreadable, entry_ids, parse_offsets
from penstock.checkpoint.spark_checkpoint import SparkCheckpoint
from penstock.core.kafka_offset import moved
from penstock.core.model import BatchId, SourceName, new_nonce
from penstock.errors import Failed, Refused
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


def move_offsets(checkpoint: SparkCheckpoint, names: Sequence[SourceName], moves: Moves) -> None:
    """Make the next batch start at `moves`. A batch that is planned and not committed reads nothing of these topics.

    Safe to repeat. Raises Refused for a checkpoint in a store, Failed.
    """
    planned = checkpoint.latest_offsets_id()
    assert planned is not None
    if is_blob(checkpoint.location):
        raise Refused(
            f"The checkpoint {checkpoint.location} is in a store, where Penstock does not change it.",
            remedy="Copy it into a directory (`checkpoint:`), start once from there, and put it back.",
        )
    root = Path(checkpoint.location)
    committed = checkpoint.latest_commit_id()
    changed = [planned] if committed == planned else [BatchId(planned - 1), planned]
    kept = root / f"moved-{new_nonce()}"
    keys = {key: moves[name] for name, name_keys in checkpoint.keys(planned, names).items() if name in moves for key in name_keys}
    with translate_os_errors(
        Failed, f"The checkpoint {root} cannot be moved behind the gap", then=", then start again: the rest is done then."
    ):
        make_private_directory(kept)
        for batch_id in changed:
            _write(kept / str(batch_id), (root / "offsets" / str(batch_id)).read_bytes())
        sync_directory(kept)
        sync_directory(root)
        for batch_id in changed:
            _replace(root / "offsets", batch_id, keys)


def entries_before_moves(checkpoint: SparkCheckpoint, batch_id: BatchId) -> Sequence[OffsetsEntry]:
    """Return what `offsets/<batch_id>` was each time before `move_offsets` replaced it, in no order."""
    if is_blob(checkpoint.location):
        return []
    found = []
    for path in Path(checkpoint.location).glob(f"moved-*/{batch_id}"):
        with suppress(Unreadable):  # the copy was not finished, so nothing was replaced yet
            found.append(parse_offsets(path.read_bytes()))
    return found


def _replace(folder: Path, batch_id: BatchId, keys: Mapping[str, Mapping[str, Mapping[int, int]]]) -> None:
    path = folder / str(batch_id)
    hidden = folder / f".moved-{batch_id}"
    _write(hidden, _moved(path.read_bytes().decode(), keys).encode())
    (folder / f".{batch_id}.crc").unlink(missing_ok=True)
    hidden.replace(path)
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
