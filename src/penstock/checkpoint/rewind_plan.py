"""What a rewind of a checkpoint changes: both logs, the logs of sources and the state go back to the end of one batch."""

from collections.abc import Iterator

from penstock.checkpoint.act import Act, Draft, newest_entries
from penstock.checkpoint.entries import Unreadable, entry_ids, parse_commit, parse_offsets
from penstock.checkpoint.files import Files
from penstock.checkpoint.hadoop_checksum import checksum_name
from penstock.checkpoint.inspection import Next
from penstock.checkpoint.source_log import entries_in, kind_of, log_offset
from penstock.checkpoint.source_rewind import rewind_source
from penstock.checkpoint.state import operator_ids
from penstock.checkpoint.state_chain import chains, partition_stores
from penstock.checkpoint.verification import verify_files
from penstock.core.model import BatchId
from penstock.errors import Refused

_VERIFY = "`penstock checkpoint verify` shows what the checkpoint lacks."


def plan_rewind(files: Files, *, to_batch: BatchId, keeps_plan: bool = False) -> Act:
    """Return the act after which batch `to_batch` is the newest one, committed, and Spark plans the next batch anew.

    With `keeps_plan` the plan of the next batch stays, and Spark runs that batch again with the same input. Raises Refused if the
    checkpoint is not there any more as it was after that batch; the message names the oldest batch that is possible.
    """
    newest = newest_entries(files)  # first: what a query adds meanwhile must be seen when the act begins
    _require_possible(files, to_batch)
    draft = Draft(files)
    newest_kept = BatchId(to_batch + 1) if keeps_plan else to_batch
    _rewind_log(draft, "commits", to_batch, "later batches are not over")
    _rewind_log(draft, "offsets", newest_kept, "later batches are planned anew")
    _rewind_state(draft, to_batch)
    _rewind_sources(files, draft, newest_kept)
    found = verify_files(draft)
    wrong = next((finding for finding in found.findings if finding.severity.value != "harmless"), None)
    if wrong is not None:
        raise _impossible(files, to_batch, wrong.meaning.rstrip("."))
    if found.outlook.next is not (Next.REPLAY if keeps_plan else Next.NEW):
        raise _impossible(files, to_batch, f"offsets/{newest_kept} is missing")
    upcoming = BatchId(to_batch + 1)
    how = "again, with the same input" if keeps_plan else "anew, with whatever input is there then"
    return Act(
        verb="rewind",
        request={"to_batch": to_batch},
        location=files.location,
        sentence=f"The checkpoint goes back to the end of batch {to_batch}: Spark runs batch {upcoming} {how}.",
        steps=draft.steps(),
        next_batch_id=upcoming,
        newest=newest,
        newest_after=newest_entries(draft),
    )


def possible_batches(files: Files, *, newest_first: bool = False) -> Iterator[BatchId]:
    """Yield the batches with an entry in both logs and a state that can be loaded, oldest first unless `newest_first`."""
    planned, committed = (frozenset(entry_ids(files.names(log))) for log in ("offsets", "commits"))
    stores = list(partition_stores(files))
    for batch_id in sorted(planned & committed, reverse=newest_first):
        if batch_id > 0 and batch_id - 1 not in planned:
            continue
        try:
            commit = parse_commit(files.read(f"commits/{batch_id}") or b"")
        except Unreadable:
            continue
        if all(missing is None for *_, missing in chains(files, stores, version=batch_id + 1, commit=commit)):
            yield batch_id


def _require_possible(files: Files, to_batch: BatchId) -> None:
    if not any(entry_ids(files.names(log)) for log in ("offsets", "commits")):
        raise Refused(
            f"The checkpoint {files.location} cannot go back to the end of batch {to_batch}: it holds no batch.",
            remedy="If it was lost, `penstock checkpoint rebuild FILE` makes it again from the ledger; if no batch has run yet, "
            "there is nothing to take back.",
        )
    before = [f"offsets/{to_batch - 1}"] if to_batch > 0 else []  # Spark reads the two newest
    for place in (*before, f"offsets/{to_batch}", f"commits/{to_batch}"):
        if files.size_bytes(place) is None:
            raise _impossible(files, to_batch, f"{place} is missing")
    newest = newest_entries(files)
    assert newest.committed is not None
    if newest.planned is None or newest.committed > newest.planned:
        raise _impossible(files, to_batch, f"commits/{newest.committed} is there without its offsets entry")


def _impossible(files: Files, to_batch: BatchId, what: str) -> Refused:
    oldest, newest = next(possible_batches(files), None), next(possible_batches(files, newest_first=True), None)
    if oldest is None:
        remedy = f"No batch is possible. {_VERIFY}"
    elif oldest == to_batch:
        remedy = _VERIFY
    elif oldest == newest:
        remedy = f"Name batch {oldest}, the only one that is possible."
    else:
        remedy = f"Name a batch from {oldest}, the oldest that is possible, to {newest}, the newest."
    return Refused(f"The checkpoint {files.location} cannot go back to the end of batch {to_batch}: {what}.", remedy=remedy)


def _rewind_log(draft: Draft, log: str, newest: BatchId, why: str) -> None:
    beside = set(draft.names(log))
    for batch_id in sorted(entry_ids(beside), reverse=True):
        if batch_id > newest:
            remove_with_checksum(draft, f"{log}/{batch_id}", beside, reason=why)


def remove_with_checksum(draft: Draft, place: str, beside: set[str], *, reason: str) -> None:
    """Remove a file and the checksum files that are `beside` it: Hadoop's, and Spark's own of state files."""
    draft.delete(place, reason=reason)
    for checksum in (checksum_name(place), f"{place}.crc", checksum_name(f"{place}.crc")):
        if checksum.rpartition("/")[2] in beside:
            draft.delete(checksum, reason=reason)


def _rewind_state(draft: Draft, to_batch: BatchId) -> None:
    for store in partition_stores(draft):
        beside = set(draft.names(store.folder))
        for file in sorted(store.versions, key=lambda file: file.version, reverse=True):
            if file.version > to_batch + 1:
                remove_with_checksum(draft, file.place, beside, reason="the state after later batches")
    for operator_id in operator_ids(draft):
        folder = f"state/{operator_id}/_metadata/v2"
        beside = set(draft.names(folder))
        written = sorted(entry_ids(beside))
        for batch_id in written:
            if batch_id > to_batch + 1 and written[0] <= to_batch + 1:
                remove_with_checksum(draft, f"{folder}/{batch_id}", beside, reason="the operator in later batches")


def _rewind_sources(files: Files, draft: Draft, newest_kept: BatchId) -> None:
    """Remove what file sources listed for later batches. What other sources log says only where they began, and stays."""
    ends = _offsets(files, newest_kept)
    newest = _offsets(files, max(entry_ids(files.names("offsets"))))
    of_files = [key for key, offset in {**newest, **ends}.items() if kind_of(offset) == "files"]
    last_of_any = max((log_offset(ends.get(key)) or 0 for key in of_files if ends.get(key) is not None), default=-1)
    for folder, size_bytes in files.sizes("sources").items():
        is_log = of_files and kind_of(newest.get(folder, ends.get(folder))) in {"files", "none"}
        if size_bytes is None and is_log and entries_in(files.names(f"sources/{folder}")):
            last = log_offset(ends[folder]) if ends.get(folder) is not None else None
            known = -1 if folder in of_files else last_of_any  # a relation that is used twice logs under its first use only
            rewind_source(draft, f"sources/{folder}", last=known if last is None else last)


def _offsets(files: Files, batch_id: BatchId) -> dict[str, str | None]:
    try:
        return dict(parse_offsets(files.read(f"offsets/{batch_id}") or b"").offsets)
    except Unreadable:
        return {}
