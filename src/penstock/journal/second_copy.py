"""Brings the copy of a journal level with it at the start: each gets what only the other one has of acknowledged events."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from penstock.errors import JournalDamaged, LedgerMismatch
from penstock.journal.format import SEGMENTS, index_path, segment_path
from penstock.journal.readers import registrations
from penstock.journal.segment import open_segment, read_index, segment_firsts
from penstock.journal.storage import Storage

_TEMPORARY = "incoming~"


def level(storage: Storage, home: Path, copy: Path) -> None:
    """Make the segments in `home` and `copy` the same. Both were recovered, and nobody else writes.

    Raises LedgerMismatch where they are of two journals, JournalDamaged where they hold different events, or do not join.
    """
    ours, theirs = segment_firsts(storage, home), segment_firsts(storage, copy)
    _require_one_journal(storage, home, ours, copy, theirs)
    released = _drop_released(storage, home, copy, ours=ours, theirs=theirs) if theirs else []
    for first in sorted({*ours, *theirs}.difference(released)):
        here, there = segment_path(home, first), segment_path(copy, first)
        if first not in theirs:
            _bring(storage, here, there)
        elif first not in ours:
            _bring(storage, there, here)
        elif not _are_sealed_alike(storage, home, copy, first):
            shorter, longer = sorted((here, there), key=storage.size)
            _lengthen(storage, shorter, longer)


def _require_one_journal(storage: Storage, home: Path, ours: Sequence[int], copy: Path, theirs: Sequence[int]) -> None:
    ids = [
        open_segment(storage, place, firsts[-1]).header.journal_id for place, firsts in ((home, ours), (copy, theirs)) if firsts
    ]
    if len(ids) == 2 and ids[0] != ids[1]:
        raise LedgerMismatch(
            f"{copy} holds a copy of the journal {ids[1]}, and the journal in {home} is {ids[0]}.",
            remedy="Name another directory for the copy.",
        )
    if theirs and not ours:
        raise JournalDamaged(
            f"The journal {home} is empty, and its copy in {copy} has events.",
            remedy=f"Restore it: copy the files of {copy / SEGMENTS} into {home / SEGMENTS}.",
        )


def _drop_released(storage: Storage, home: Path, copy: Path, *, ours: Sequence[int], theirs: Sequence[int]) -> Sequence[int]:
    """Remove segments from the copy that the journal has removed, and return them; those that are not released it gets back.

    Nothing else tells them from lost ones: a reader may be forgotten after the removal, or come after it.
    """
    needed = min((each.next for each in registrations(storage, home)), default=0)
    old = [first for first in theirs if first < ours[0]]
    released = [first for first, behind in pairwise([*old, ours[0]]) if behind <= needed]
    if len(released) < len(old) and ours[0] not in theirs:
        raise JournalDamaged(
            f"The journal {home} begins with event {ours[0]}. Its copy {copy} has some before it that were not released by "
            "every reader, and ends before it.",
            remedy="If nobody needs them, let the receiver make a new copy in an empty directory; keep this one until you know.",
        )
    for first in released:
        path = segment_path(copy, first)
        for each in (index_path(path), path):
            if each.name in storage.names(each.parent):
                storage.remove(each)
    storage.sync_directory(copy / SEGMENTS)
    return released


def _are_sealed_alike(storage: Storage, home: Path, copy: Path, first: int) -> bool:
    """Whether both indexes of a segment say the same, its checksum too. Each was made from the bytes beside it."""
    here, there = (read_index(storage, open_segment(storage, place, first)) for place in (home, copy))
    return here is not None and here == there


def _bring(storage: Storage, source: Path, target: Path) -> None:
    temporary = target.with_name(_TEMPORARY)
    if _TEMPORARY in storage.names(target.parent):
        storage.remove(temporary)
    file = storage.create(temporary)
    try:
        file.write(storage.read(source))
        file.sync()
    finally:
        file.close()
    storage.replace(target, temporary)
    storage.sync_directory(target.parent)


def _lengthen(storage: Storage, shorter: Path, longer: Path) -> None:
    size = storage.size(shorter)
    if storage.read(shorter) != storage.read(longer, 0, size):
        raise JournalDamaged(
            f"{shorter} and {longer} should begin alike, and do not.",
            remedy="`penstock journal verify` says which of them is whole; copy that one over the other. If both are, the "
            "receiver wrote to one of them alone: keep the copy elsewhere, for it may have acknowledged events that the journal "
            "lacks, and let the receiver make a new one.",
        )
    if storage.size(longer) == size:
        return
    file = storage.open(shorter)
    try:
        file.seek(size)
        file.write(storage.read(longer, size))
        file.sync()
    finally:
        file.close()
