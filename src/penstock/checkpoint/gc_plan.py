"""What garbage collection removes from a checkpoint: files that neither a restart nor a rewind within reach can need."""

from collections.abc import Mapping

from penstock.checkpoint.act import Act, Draft, newest_entries
from penstock.checkpoint.acting import done_acts, places_of_act
from penstock.checkpoint.catching_up import COPY
from penstock.checkpoint.entries import Unreadable, entry_ids
from penstock.checkpoint.files import Files, places_below
from penstock.checkpoint.leftovers import remove_leftovers
from penstock.checkpoint.log_reading import read_logs
from penstock.checkpoint.rewind_plan import remove_with_checksum
from penstock.checkpoint.source_log import entries_in, kind_of, log_offset
from penstock.checkpoint.state import SSTS
from penstock.checkpoint.state_chain import PartitionStore, StateMissing, chain, partition_stores, state_id
from penstock.checkpoint.state_content import tables_in
from penstock.checkpoint.verification import verify_files
from penstock.core.model import BatchId
from penstock.errors import Failed, Refused

SPARK_RETAINS = 100
"""Batches that Spark retains unless `spark.sql.streaming.minBatchesToRetain` says otherwise."""


def plan_gc(files: Files, *, keep_batches: int = SPARK_RETAINS) -> Act:
    """Return the act that removes what no restart needs, nor a rewind to one of the newest `keep_batches` batches (at least 2).

    Also temporary files, checksums of files that are gone, state of attempts that failed, and backups of all acts but the newest.
    Raises Refused for a checkpoint on which Spark cannot go on as it is.
    """
    newest = newest_entries(files)
    found = verify_files(files)
    if not found.ok or found.outlook.batch_id is None:
        raise Refused(
            f"The checkpoint {files.location} is not as Spark wrote it, and what is left may be needed to repair it.",
            remedy="Run `penstock checkpoint verify` on it first.",
        )
    draft = Draft(files)
    oldest = BatchId(max((newest.planned or 0) + 1 - max(keep_batches, 2), 0))
    if newest.planned is not None:
        _collect_logs(draft, oldest)
        _collect_sources(draft, oldest)
        _collect_state(draft, oldest)
    remove_leftovers(draft)
    _collect_backups(draft)
    after = verify_files(draft)
    if (after.ok, after.outlook) != (True, found.outlook):
        raise Failed("What is to be removed is read by the next start.", remedy="Report this: nothing was removed.")
    steps = draft.steps()
    size_bytes = sum(step.size_bytes for step in steps)
    removed = f"{len(steps)} files ({size_bytes:,} bytes)"
    note = f"Spark itself retains {SPARK_RETAINS} batches, or spark.sql.streaming.minBatchesToRetain. It leaves temporary files."
    return Act(
        verb="gc",
        request={"keep_batches": keep_batches},
        location=files.location,
        sentence=f"{removed} are removed: no restart needs them, nor a rewind to batch {oldest} or a newer one.",
        steps=steps,
        notes=(note,),
        next_batch_id=found.outlook.batch_id,
        newest=newest,
        newest_after=None,
    )


def _collect_logs(draft: Draft, oldest: BatchId) -> None:
    """Spark reads the two newest entries of the offset log, so a rewind to the oldest batch needs the one before it."""
    for log, first in (("commits", oldest), ("offsets", oldest - 1)):
        beside = set(draft.names(log))
        newest = max(entry_ids(beside), default=0)
        for batch_id in sorted(entry_ids(beside)):
            if batch_id < min(first, newest):
                remove_with_checksum(draft, f"{log}/{batch_id}", beside, reason="older than every batch within reach")


def _collect_sources(draft: Draft, oldest: BatchId) -> None:
    """Remove entries of file sources that the newest compacted entry within reach of the oldest batch repeats."""
    logs = read_logs(draft)
    first = logs.offsets.get(oldest, logs.offsets[min(logs.offsets)])
    before = logs.offsets.get(BatchId(oldest - 1), first)
    of_files = {key: end for key, offset in before.offsets.items() if (end := log_offset(offset)) is not None}
    for folder, size_bytes in draft.sizes("sources").items():
        if size_bytes is not None or folder not in of_files or kind_of(before.offsets[folder]) != "files":
            continue
        beside = set(draft.names(f"sources/{folder}"))
        entries = entries_in(beside)
        compacted = [number for name, number in entries.items() if name.endswith(".compact") and number <= of_files[folder]]
        # Spark derives its interval from two compacted entries, so the one before the newest stays, too.
        cut = sorted(compacted)[-2] if len(compacted) > 1 else 0
        for name, number in sorted(entries.items(), key=lambda entry: entry[1]):
            if number < cut:
                remove_with_checksum(draft, f"sources/{folder}/{name}", beside, reason="a newer compacted entry repeats it")


def _collect_state(draft: Draft, oldest: BatchId) -> None:
    """Version V is needed to run batch V, and so are all versions from that of the oldest batch on."""
    commits = read_logs(draft).commits
    newest = max(entry_ids(draft.names("offsets")))
    for store in list(partition_stores(draft)):
        needed: set[str] = set()
        ids: dict[int, str | None] = {}
        for version in range(max(oldest, 1), newest + 2):
            try:
                ids[version] = state_id(store, commits.get(BatchId(version - 1)))
                if not needed:  # newer versions need nothing that is older
                    needed.update(tuple(chain(draft, store, version=version, unique_id=ids[version])))
            except StateMissing:  # not within reach, or of the batch that is not committed yet
                continue
        _collect_store(draft, store, needed, ids, committed=max(commits, default=-1))


def _collect_store(
    draft: Draft, store: PartitionStore, needed: set[str], ids: Mapping[int, str | None], *, committed: int
) -> None:
    """Remove versions before all that are `needed`, and those of attempts that failed. What repeats a version stays."""
    beside = set(draft.names(store.folder))
    lowest = min((file.version for file in store.versions if file.place in needed), default=0)
    for file in sorted(store.versions, key=lambda file: file.version):
        if file.version < lowest:
            remove_with_checksum(draft, file.place, beside, reason="no version within reach is loaded from it")
        elif file.version in ids and file.unique_id != ids[file.version] and file.place not in needed:
            remove_with_checksum(draft, file.place, beside, reason="an attempt at a batch left it, which was made again")
    if all(file.version <= committed + 1 for file in store.versions):  # a batch under way may have written tables already
        _collect_tables(draft, store)


def _collect_tables(draft: Draft, store: PartitionStore) -> None:
    folder = f"{store.folder}/{SSTS}"
    beside = set(draft.names(folder))
    used: set[str] = set()
    for name in draft.names(store.folder):
        if name.endswith(".zip"):
            try:
                used.update(tables_in(draft.read(f"{store.folder}/{name}") or b""))
            except Unreadable:
                return
    for name in sorted(beside):
        if name.endswith(".sst") and name not in used:
            remove_with_checksum(draft, f"{folder}/{name}", beside, reason="no snapshot that is left refers to it")


def _collect_backups(draft: Draft) -> None:
    for place in list(places_below(draft, COPY)):
        draft.delete(place, reason="left by a rebuild that was interrupted")
    for folder in list(done_acts(draft))[:-1]:
        for place in places_of_act(draft, folder):
            draft.delete(place, reason="the backup of an older act; not kept")
