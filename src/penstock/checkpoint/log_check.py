"""Finds holes and contradictions in Spark's offset and commit logs, and files in them that are not entries."""

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence

from penstock.checkpoint.anomaly import RESTORE, Anomaly, Severity
from penstock.checkpoint.entries import ENTRY_ID
from penstock.checkpoint.files import Files
from penstock.core.model import BatchId

_CHECKSUM = re.compile(r"\.(.+)\.crc")
_TEMPORARY = re.compile(r"\..*\.tmp(\.crc)?|.*\.tmp")
_SOME = 5


def odd_sequence(planned: frozenset[BatchId], committed: frozenset[BatchId]) -> Iterator[Anomaly]:
    """Yield an anomaly for each hole in a log, and for each contradiction between the two logs."""
    newest = max(planned, default=None)
    for hole in _holes(planned):
        needed = newest is not None and hole.stop == newest
        yield Anomaly(
            place=f"offsets/{hole.start}",
            severity=Severity.STOPS if needed else Severity.HARMLESS,
            message=f"The offset log has a hole: {_listed('offsets', hole)}.",
            remedy=RESTORE if needed else "Somebody removed entries by hand; Spark does not need these any more.",
        )
    for hole in _holes(committed):
        yield Anomaly(
            place=f"commits/{hole.start}",
            severity=Severity.HARMLESS,
            message=f"The commit log has a hole: {_listed('commits', hole)}; Spark looks at the newest commit only.",
            remedy="Nothing need be done, but somebody removed entries by hand.",
        )
    yield from _against_each_other(newest, max(committed, default=None))


def _against_each_other(newest: BatchId | None, newest_commit: BatchId | None) -> Iterator[Anomaly]:
    if newest_commit is not None and (newest is None or newest_commit > newest):
        entry = "there is no offsets entry at all" if newest is None else f"the newest offsets entry is {newest}"
        first = 0 if newest is None else newest
        yield Anomaly(
            place=f"commits/{newest_commit}",
            severity=Severity.LOSES,
            message=f"commits/{newest_commit} is there, but {entry}: Spark delivers batch {first} once more and then fails.",
            remedy="Restore the missing offsets entries from a copy before you start it.",
        )
    if newest is not None and (-1 if newest_commit is None else newest_commit) < newest - 1:
        first = 0 if newest_commit is None else newest_commit + 1
        yield Anomaly(
            place=f"commits/{first}",
            severity=Severity.LOSES,
            message=f"Spark goes on with batch {newest}, but {_listed('commits', range(first, newest))}: "
            "it passes over these batches in silence, delivered or not.",
            remedy=f"To run them again, remove offsets/{first + 1} and all newer ones first (work on a copy).",
        )


def _holes(ids: Iterable[BatchId]) -> Iterator[range]:
    present = sorted(ids)
    for before, after in itertools.pairwise(present):
        if after > before + 1:
            yield range(before + 1, after)


def _listed(folder: str, ids: range) -> str:
    shown = ", ".join(f"{folder}/{batch_id}" for batch_id in ids[:_SOME])
    more = f" and {len(ids) - _SOME} more" if len(ids) > _SOME else ""
    return f"{shown}{more} {'is' if len(ids) == 1 else 'are'} missing"


def foreign_files(files: Files, folder: str) -> Iterator[Anomaly]:
    """Yield anomalies for the files in a log's directory that are neither entries nor checksums of entries."""
    names = files.names(folder)
    temporary = sorted(name for name in names if _TEMPORARY.fullmatch(name) and not name.endswith(".crc"))
    if temporary:
        yield _left_over(folder, temporary)
    for name in sorted(set(names) - set(temporary)):
        if not (ENTRY_ID.fullmatch(name) or _TEMPORARY.fullmatch(name) or _CHECKSUM.fullmatch(name)):
            yield Anomaly(
                place=f"{folder}/{name}",
                severity=Severity.HARMLESS,
                message=f"{folder}/{name} is no entry of Spark's log.",
                remedy="Spark passes over it; find out who put it there.",
            )


def _left_over(folder: str, names: Sequence[str]) -> Anomaly:
    shown = ", ".join(names[:_SOME]) + (f" and {len(names) - _SOME} more" if len(names) > _SOME else "")
    return Anomaly(
        place=folder,
        severity=Severity.HARMLESS,
        message=f"{folder} has temporary files of a writer that died, or of a second driver: {shown}.",
        remedy="Make sure that no driver runs; then they may be deleted.",
    )
