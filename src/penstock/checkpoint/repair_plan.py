"""What a repair of a checkpoint changes: only damage whose repair can neither lose nor repeat anything; all else is refused.

What only the ledger tells comes as `Decided`. Without it, a damage that can have several causes is not repaired.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from uuid import UUID

from penstock.checkpoint.act import Act, Draft, Newest, newest_entries
from penstock.checkpoint.copying import UNFINISHED
from penstock.checkpoint.entries import NO_OFFSET, OffsetsEntry, Severity, Unreadable, entry_ids, parse_offsets
from penstock.checkpoint.files import Files
from penstock.checkpoint.hadoop_checksum import checksum_name, is_whole_checksum, matches
from penstock.checkpoint.leftovers import lost_files, remove_leftovers
from penstock.checkpoint.rewind_plan import remove_with_checksum
from penstock.checkpoint.source_log import entries_in, log_offset
from penstock.checkpoint.verification import Verification, verify_files
from penstock.core.kafka_offset import without_notes
from penstock.core.model import BatchId
from penstock.errors import Refused, Usage

_ROUNDS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """What the ledger tells of a checkpoint. `query_id` is None while nothing of its query is decided.

    `ends` returns the offsets that a decided batch ended with, by the keys of the checkpoint; None if it tells nothing of it.
    """

    query_id: str | None
    next_batch_id: BatchId
    ends: Callable[[BatchId], Mapping[str, str | None] | None]


def plan_repair(files: Files, *, query_id: str | None = None, decided: Decided | None = None) -> Act:
    """Return the act after which `verify` finds nothing that changes what Spark does. `query_id`: for a `metadata` that is lost.

    Raises Refused with the first finding that cannot be repaired without losing or repeating anything, Usage for a wrong id.
    """
    if query_id is not None and not _is_uuid(query_id):
        raise Usage(f"--query-id is {query_id!r}, expected a UUID.", remedy="`penstock history` shows the query id.")
    newest = newest_entries(files)
    draft = Draft(files)
    remove_leftovers(draft)
    repair = _Repair(draft, query_id or (None if decided is None else decided.query_id), decided)
    found = _mended(files, draft, repair)
    steps = draft.steps()
    return Act(
        verb="repair",
        request={"query_id": query_id},
        location=files.location,
        sentence=f"{len(steps)} {'file is' if len(steps) == 1 else 'files are'} repaired. "
        f"Spark then goes on with batch {found.outlook.batch_id}, and loses nothing.",
        steps=steps,
        notes=tuple(dict.fromkeys(repair.notes)),
        next_batch_id=found.outlook.batch_id,
        newest=newest,
        newest_after=newest_entries(draft),
    )


def _mended(files: Files, draft: Draft, repair: "_Repair") -> Verification:
    """Mend findings until there is none that matters, and return the last verification."""
    for _ in range(_ROUNDS):
        lost = [place for place in lost_files(draft) if not repair.mend(place)]
        found = verify_files(draft)
        wrong = [finding for finding in found.findings if finding.severity is not Severity.HARMLESS]
        if lost:
            raise _beyond(files, f"{lost[0]} is gone, and its checksum is still there")
        if not wrong:
            if not found.ok or found.outlook.batch_id is None:
                raise _beyond(files, "an entry that Spark needs is missing")
            return found
        if not sum(repair.mend(finding.file) for finding in wrong):
            raise _beyond(files, wrong[0].meaning.rstrip("."))
    raise _beyond(files, wrong[0].meaning.rstrip("."))


def _beyond(files: Files, what: str) -> Refused:
    return Refused(
        f"The checkpoint {files.location} cannot be repaired without the risk that rows are lost or repeated: {what}.",
        remedy="Restore it from a copy. If a directory was named, name the pipeline file: its ledger tells more than the "
        "checkpoint alone.",
    )


class _Repair:
    """Mends one place after the other in a draft. `mend` returns whether it changed anything."""

    def __init__(self, draft: Draft, query_id: str | None, decided: Decided | None) -> None:
        self._draft, self._query_id, self._decided = draft, query_id, decided
        self.notes: list[str] = []

    @property
    def _newest(self) -> Newest:
        return newest_entries(self._draft)

    def mend(self, place: str) -> bool:
        before = self._draft.steps()
        folder, _, name = place.rpartition("/")
        if place == "metadata":
            self._metadata()
        elif self._is_torn_checksum(place):
            self._draft.delete(checksum_name(place), reason="the checksum itself is cut off; the file is whole")
        elif folder == "commits" and name.isdecimal():
            self._commit(BatchId(int(name)))
        elif folder == "offsets" and name.isdecimal():
            self._offsets(BatchId(int(name)))
        elif place.startswith("sources/"):
            self._source(place if place.count("/") == 1 else folder)
        return self._draft.steps() != before

    def _is_torn_checksum(self, place: str) -> bool:
        checksum = self._draft.read(checksum_name(place))
        return checksum is not None and not is_whole_checksum(checksum) and self._draft.size_bytes(place) is not None

    def _metadata(self) -> None:
        """Write the query id, unless a whole checksum shows that it was another one."""
        if self._query_id is None or self._draft.read("metadata") == UNFINISHED:
            return
        content = json.dumps({"id": self._query_id}, separators=(",", ":")).encode()
        checksum = self._draft.read(checksum_name("metadata"))
        if checksum is not None and is_whole_checksum(checksum) and not matches(content, checksum):
            return
        if checksum is not None and not matches(content, checksum):
            self._draft.delete(checksum_name("metadata"), reason="the checksum itself is cut off")
        self._draft.write("metadata", content, reason="the query id")

    def _commit(self, batch_id: BatchId) -> None:
        """Write the newest commit again if its content is known for certain, or remove it if the ledger has decided its batch."""
        place = f"commits/{batch_id}"
        if batch_id == self._newest.planned and (content := self._known_commit(batch_id)) is not None:
            self._draft.write(place, content, reason=f"batch {batch_id} is over")
        elif self._is_decided_as_planned(batch_id) or self._is_never_planned(batch_id):
            beside = set(self._draft.names("commits"))
            remove_with_checksum(self._draft, place, beside, reason="it cannot be read, or its batch was never planned")
            if batch_id == self._newest.planned:
                self.notes.append(f"Batch {batch_id} runs again, and the ledger recognises it.")

    def _known_commit(self, batch_id: BatchId) -> bytes | None:
        """Return what all other commits are, if the checksum confirms it for this one, too, or the query keeps no state."""
        others = {self._draft.read(f"commits/{one}") or b"" for one in entry_ids(self._draft.names("commits")) if one != batch_id}
        entry = self._entry(batch_id)
        watermark = 0 if entry is None else entry.watermark_ms or 0
        variants = {text.partition(b"\n")[0] + b'\n{"nextBatchWatermarkMs":%d}' % watermark for text in others}
        if len(others) != 1 or others != variants:
            return None
        checksum = self._draft.read(checksum_name(f"commits/{batch_id}"))
        is_confirmed = not self._draft.names("state") if checksum is None else matches(min(others), checksum)
        return min(others) if is_confirmed else None

    def _offsets(self, batch_id: BatchId) -> None:
        newest = self._newest.planned
        if newest is None:
            return
        if batch_id == newest:
            self._newest_offsets(newest)
        elif self._entry(BatchId(newest - 1)) is None:
            self._fill_hole(BatchId(newest - 1))

    def _newest_offsets(self, newest: BatchId) -> None:
        """Remove the plan of a batch that never was decided; a checksum that differs from the plan which the ledger confirms."""
        entry, beside = self._entry(newest), set(self._draft.names("offsets"))
        if self._decided is not None and self._decided.next_batch_id == newest and self._newest.committed != newest:
            remove_with_checksum(self._draft, f"offsets/{newest}", beside, reason="its batch is not decided: it is planned anew")
        elif entry is not None and self._is_decided_as_planned(newest):
            self._draft.delete(checksum_name(f"offsets/{newest}"), reason="the ledger confirms the offsets, not the checksum")

    def _fill_hole(self, missing: BatchId) -> None:
        """Write the entry before the newest: what the ledger decided, or the newest again if nothing is read from there."""
        after = BatchId(missing + 1)
        entry = self._entry(after)
        if entry is None:
            return
        ends = None if self._decided is None else self._decided.ends(missing)
        beside = set(self._draft.names("offsets"))
        if ends is not None and ends.keys() == entry.offsets.keys():
            self._draft.write(f"offsets/{missing}", self._filled(after, ends), reason="the offsets that the ledger decided")
        elif self._newest.committed == after:
            # Nothing may ever go back to it, so its batch must not count as committed.
            commits = set(self._draft.names("commits"))
            self._draft.write(f"offsets/{missing}", self._filled(after, entry.offsets), reason="Spark wants an entry there")
            remove_with_checksum(self._draft, f"commits/{missing}", commits, reason="no rewind to this batch is possible")
        checksum = checksum_name(f"offsets/{missing}")
        if checksum.rpartition("/")[2] in beside:
            self._draft.delete(checksum, reason="the checksum of the lost entry")

    def _filled(self, after: BatchId, ends: Mapping[str, str | None]) -> bytes:
        """Return the entry `after` with other offsets, planned a millisecond earlier."""
        version, metadata, *_ = (self._draft.read(f"offsets/{after}") or b"").decode().split("\n")
        fields = json.loads(metadata)
        fields["batchTimestampMs"] = int(fields.get("batchTimestampMs", 1)) - 1
        entry = self._entry(after)
        keys = [] if entry is None else list(entry.offsets)
        lines = [NO_OFFSET if ends[key] is None else str(ends[key]) for key in keys]
        if version.strip() != "v1":
            lines = [f"{key}:{line}" for key, line in zip(keys, lines, strict=True)]
        return "\n".join([version, json.dumps(fields, separators=(",", ":")), *lines]).encode()

    def _source(self, folder: str) -> None:
        """Remove entries that no batch reads yet, and a compacted entry that another one's copy stands in for."""
        newest = self._newest.planned
        entry = None if newest is None else self._entry(newest)
        last = None if entry is None else log_offset(entry.offsets.get(folder.rpartition("/")[2]))
        if last is None:
            return
        beside = set(self._draft.names(folder))
        for name, number in entries_in(beside).items():
            if number > last:
                remove_with_checksum(
                    self._draft, f"{folder}/{name}", beside, reason="no batch reads it yet: Spark finds it again"
                )
            elif name.endswith(".compact") and str(number) in beside and not self._ends_with(f"{folder}/{name}", number):
                remove_with_checksum(self._draft, f"{folder}/{name}", beside, reason="the copy of another entry")

    def _ends_with(self, place: str, number: int) -> bool:
        line = (self._draft.read(place) or b"").rstrip().rpartition(b"\n")[2]
        try:
            return bool(json.loads(line)["batchId"] == number)
        except (ValueError, KeyError, TypeError):
            return False

    def _is_decided_as_planned(self, batch_id: BatchId) -> bool:
        entry = self._entry(batch_id)
        ends = None if self._decided is None else self._decided.ends(batch_id)
        if entry is None or ends is None or batch_id != self._newest.planned:
            return False
        return ends == {key: without_notes(offset) for key, offset in entry.offsets.items()}

    def _is_never_planned(self, batch_id: BatchId) -> bool:
        planned = self._newest.planned
        is_end = self._decided is not None and planned is not None and self._decided.next_batch_id == planned + 1
        return is_end and planned is not None and batch_id > planned

    def _entry(self, batch_id: BatchId) -> OffsetsEntry | None:
        try:
            return parse_offsets(self._draft.read(f"offsets/{batch_id}") or b"")
        except Unreadable:
            return None


def _is_uuid(text: str) -> bool:
    try:
        return str(UUID(text)) == text.lower()
    except ValueError:
        return False
