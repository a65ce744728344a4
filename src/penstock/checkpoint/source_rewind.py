"""Takes the log of a file source back to one of its entries, so that Spark finds everything after it again."""

import json

from penstock.checkpoint.act import Draft
from penstock.checkpoint.hadoop_checksum import checksum_name
from penstock.checkpoint.source_log import entries_in
from penstock.errors import Refused


def rewind_source(draft: Draft, folder: str, *, last: int) -> None:
    """Remove the entries after `last` (-1: all). Raises Refused if the entries before it are not there any more.

    If only a later compacted entry repeats them, they become the one entry `<last>.compact`. Spark derives its interval from that
    number then, so it also finds the entry if the log was compacted at other numbers before.
    """
    beside = set(draft.names(folder))
    entries = entries_in(beside)
    compacted = {log_id: name for name, log_id in entries.items() if name.endswith(".compact")}
    kept = max((log_id for log_id in compacted if log_id <= last), default=0)
    first = [compacted.get(kept, str(kept))] if last >= 0 else []
    needed = [*first, *(str(log_id) for log_id in range(kept + 1, last + 1))]
    later = min((log_id for log_id in compacted if log_id > last), default=None)
    content = None
    if not beside.issuperset(needed):
        if later is None:
            lacking = next(name for name in needed if name not in beside)
            raise Refused(
                f"The checkpoint {draft.location} has lost {folder}/{lacking}, which says what the source had read.",
                remedy="Restore the checkpoint from a copy, or name a newer batch.",
            )
        content = _entries_up_to(draft.read(f"{folder}/{compacted[later]}") or b"", last)
    for name, log_id in entries.items():
        if log_id > last or content is not None:
            _remove(draft, folder, name, beside)
    if content is not None:
        reason = f"input files up to the end of the batch, as in {compacted[later or 0]}"
        draft.write(f"{folder}/{last}.compact", content, reason=reason)


def _remove(draft: Draft, folder: str, name: str, beside: set[str]) -> None:
    reason = "input files of later batches: Spark finds them again"
    draft.delete(f"{folder}/{name}", reason=reason)
    checksum = checksum_name(f"{folder}/{name}")
    if checksum.rpartition("/")[2] in beside:
        draft.delete(checksum, reason=reason)


def _entries_up_to(compacted: bytes, last: int) -> bytes:
    version, *lines = compacted.split(b"\n")
    return b"\n".join([version, *(line for line in lines if line and int(json.loads(line)["batchId"]) <= last)])
