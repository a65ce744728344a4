"""A copy of a savepoint's checkpoint that catches up: Spark computes in it, one by one, the batches that were decided behind it.

State is made by Spark alone. What Spark reads before it runs a batch is written here: the plan `offsets/N` as it was decided, and
the logs of file sources. A batch that is planned and not committed is the first one that a start runs.
"""

import json
from collections.abc import Mapping, Sequence

from penstock.checkpoint.act import ACTS, Act, Draft, Newest, newest_entries
from penstock.checkpoint.copying import UNFINISHED, copy_checkpoint
from penstock.checkpoint.entries import NO_OFFSET, Severity, entry_ids, parse_commit, parse_offsets
from penstock.checkpoint.files import Files, LocalFiles, places_below
from penstock.checkpoint.hadoop_checksum import checksum_file, checksum_name
from penstock.checkpoint.migration import encoded_entry
from penstock.checkpoint.rebuilding import FilesByEnd, act_that_makes, places_in_logs, source_log
from penstock.checkpoint.source_log import logged_in
from penstock.checkpoint.verification import verify_files
from penstock.core.model import Batch, BatchId, Json, SourceName
from penstock.core.topics import InputFile
from penstock.errors import CheckpointDamaged, Failed

COPY = f"{ACTS}/rebuilt"
"""Where the copy is in the checkpoint that is made again: Spark goes on in neither until it has caught up."""


class CatchUp:
    """The copy. `order` names the query's sources in the order of its plan, one for each place where it reads one.

    `named`: Spark knows the sources by name. The checkpoint that is made again is touched by nothing here.
    """

    def __init__(self, files: Files, *, order: Sequence[SourceName], named: bool) -> None:
        self._files, self._order, self._named = files, order, named

    def begin(self, savepoint: Files, lists: Mapping[SourceName, FilesByEnd], *, compact_interval: int) -> None:
        """Copy the checkpoint of a savepoint, once, in the place of what an interrupted command left.

        `lists`: what the batches behind it read of each file source, by the index in the offset where each ends.
        """
        self.remove()
        self._files.write("metadata", UNFINISHED)  # directories of what was removed may still be there
        copy_checkpoint(savepoint, self._files)
        if isinstance(self._files, LocalFiles):
            self._add_checksums()
        for place, name in enumerate(dict.fromkeys(self._order)):
            if name in lists:
                self._log(f"sources/{name if self._named else place}", lists[name], interval=compact_interval)

    def _add_checksums(self) -> None:
        """Give each file of the state the checksum that Spark writes on a local disk: older savepoints have none.

        Beside what Spark writes now, a file without one would look like one that somebody put there.
        """
        for place in list(places_below(self._files, "state")):
            checksum, name = checksum_name(place), place.rpartition("/")[2]
            if not name.startswith(".") and not name.endswith(".crc") and self._files.size_bytes(checksum) is None:
                self._files.write(checksum, checksum_file(self._files.read(place) or b""))

    def _log(self, folder: str, lists: FilesByEnd, *, interval: int) -> None:
        before = dict[int, list[InputFile]]()
        for log_id, file in logged_in(self._files, folder):
            before.setdefault(log_id, []).append(file)
        listed = {**before, **lists}
        last = max(listed, default=-1)
        for name in places_below(self._files, folder):
            self._files.delete(name)
        for name, data in source_log(folder, listed, last=last, interval=interval):
            self._files.write(name, data)

    def plan(self, batch: Batch, *, decided_at_ms: int, watermark_ms: int | None = None) -> None:
        """Write the plan of the batch behind the newest one, which is committed: Spark runs it at the next start.

        Its watermark is what the batch before made it, its settings are those of the savepoint, as Spark itself keeps them.
        `watermark_ms` is the one that the batch had, if that is known. It can be a later one: of several watermarks the least
        counts, and a start knows each only from the first row that it sees.
        """
        before = BatchId(batch.batch_id - 1)
        committed = self._files.read(f"commits/{before}")
        planned = self._files.read(f"offsets/{before}")
        if committed is None or planned is None:
            raise self._not_run(before)
        follows_ms = parse_commit(committed).next_watermark_ms or 0
        if watermark_ms is not None and watermark_ms > follows_ms:
            follows_ms = watermark_ms
            self._commit_with(before, committed, follows_ms)
        second = planned.decode().split("\n")[1]
        noted: dict[str, Json] = {
            **json.loads(second),
            "batchWatermarkMs": follows_ms,
            "batchTimestampMs": decided_at_ms,
        }
        ends = {each.source: each.end for each in batch.offsets}
        if parse_offsets(planned).named:
            entry = encoded_entry(noted, {name: ends[name] for name in self._order if name in ends})  # others came later
        else:
            offsets = (ends[name] for name in self._order)
            lines = (NO_OFFSET if offset is None else offset for offset in offsets)
            entry = "\n".join(["v1", json.dumps(noted, separators=(",", ":"), ensure_ascii=False), *lines]).encode()
        self._files.write(f"offsets/{batch.batch_id}", entry)

    def _commit_with(self, batch_id: BatchId, committed: bytes, next_watermark_ms: int) -> None:
        """Have the commit say the watermark of the batch behind it, as it does wherever one run of Spark wrote both."""
        place = f"commits/{batch_id}"
        version, fields, *rest = committed.decode().split("\n")
        line = json.dumps({**json.loads(fields), "nextBatchWatermarkMs": next_watermark_ms}, separators=(",", ":"))
        self._files.delete(checksum_name(place))  # Hadoop would refuse other bytes than it is of
        self._files.write(place, "\n".join([version, line, *rest]).encode())

    def require_committed(self, batch_id: BatchId) -> None:
        """Raise Failed unless Spark has run exactly that batch."""
        newest = newest_entries(self._files)
        if newest != Newest(planned=batch_id, committed=batch_id):
            raise self._not_run(batch_id)

    def act(self, files: Files, *, savepoint: str, batch_id: BatchId) -> Act:
        """Return the act that makes the lost checkpoint what the copy is now. Reads all of it into memory.

        Raises CheckpointDamaged if Spark could not go on from it.
        """
        self.require_committed(batch_id)
        wrong = [one for one in verify_files(self._files).findings if one.severity is not Severity.HARMLESS]
        if wrong:
            raise CheckpointDamaged(
                f"What Spark made of savepoint {savepoint!r} cannot be gone on from: {wrong[0].meaning.rstrip('.')}.",
                remedy="Put the checkpoint back from a copy, and report this.",
            )
        return act_of(files, self._files, savepoint=savepoint, newest=batch_id)

    def remove(self) -> None:
        """Remove the copy."""
        for name in list(places_below(self._files, "")):
            self._files.delete(name)

    def _not_run(self, batch_id: BatchId) -> Failed:
        last = max(entry_ids(self._files.names("commits")), default=None)
        return Failed(
            f"Spark has not computed batch {batch_id} in {self._files.location}, which ends with batch {last}.",
            remedy="The checkpoint is as it was. Run the command again.",
        )


def act_of(files: Files, made: Files, *, savepoint: str, newest: BatchId, planned: BatchId | None = None) -> Act:
    """Return the act that makes a checkpoint what `made` holds, which ends with batch `newest`.

    `planned`: the batch up to which Spark is yet to compute, where the act is only to be shown.
    """
    last = newest if planned is None else planned
    again = "" if last == newest else f" Spark computes batches {newest + 1} to {last} once more for their state, on a copy."
    places = [*places_in_logs(made), "metadata"]
    return act_that_makes(
        Draft(files),
        ((place, made.read(place) or b"", f"from savepoint {savepoint}") for place in places),
        sentence=f"Make the checkpoint again from savepoint {savepoint}: Spark goes on after batch {last}.{again}",
        last=last,
    )
