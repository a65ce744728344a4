"""Carries out an act on a checkpoint so that no kill leaves it half done unnoticed, and undoes it.

Below `penstock-acts/NUMBER-VERB/` of the checkpoint, in this order:

1. `before/…` and `after/…`: copies of every file that the act changes, as it was and as it will be.
2. `act.json`: their checksums. The act is complete on disk; nothing is changed yet.
3. `metadata` of the checkpoint becomes a text that names the act. No Spark starts on it, and no run of Penstock goes on.
4. The changes, then `done.json`, and last the real `metadata`.

While `metadata` names an act, that act is unfinished: its copies suffice to finish or undo it, from any point between.
"""

import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from penstock.checkpoint.act import ACTS, Act, Change, Newest, Step, newest_entries
from penstock.checkpoint.act_record import ActRecord, Checksum, RecordedStep, checksum_of, decode_act, encode_act
from penstock.checkpoint.entries import PART_OF, finish_remedy, unfinished_act, unfinished_text
from penstock.checkpoint.files import Files, places_below
from penstock.core.faults import FaultPoint
from penstock.core.model import Json
from penstock.errors import CheckpointDamaged, Refused, Retryable

_KEEP = FaultPoint("checkpoint.keep", "copy a file that an act changes, as it was or will be")
_RECORD = FaultPoint("checkpoint.record", "write the record of an act on a checkpoint")
_GUARD = FaultPoint("checkpoint.guard", "make a checkpoint unreadable while an act changes it")
_CHANGE = FaultPoint("checkpoint.change", "write or remove one file of a checkpoint")
_DONE = FaultPoint("checkpoint.done", "note that all files of a checkpoint are changed")
_RELEASE = FaultPoint("checkpoint.release", "put the metadata of a checkpoint in its place again")

_METADATA = "metadata"
_FOLDER = re.compile(r"(\d{4,})-[a-z]+")
_DONE_FILE, _UNDONE_FILE = "done.json", "undone.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Performed:
    """What a command did, or would do. `backup` is where the files are kept as they were, None if nothing was done."""

    act: Act
    done: bool
    backup: str | None = None
    finished: bool = False
    """Whether the act was begun earlier, by a command that was interrupted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Undone:
    """An act that was undone, or would be."""

    verb: str
    sentence: str
    backup: str
    files: int
    done: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Begun:
    folder: str
    record: ActRecord


def perform(files: Files, *, verb: str, request: Mapping[str, Json], plan: Callable[[], Act], yes: bool) -> Performed:
    """Return what `plan` returns; with `yes` carry it out. An act of the same verb and request that was interrupted comes first.

    Raises Refused if another act is unfinished, Retryable if the checkpoint changes meanwhile, and what `plan` raises.
    """
    begun = _unfinished(files)
    if begun is None:
        act = plan()
        if not yes or not act.steps:
            return Performed(act=act, done=False)
        return Performed(act=act, done=True, backup=carry_out(files, act))
    if (begun.record.verb, begun.record.request) != (verb, request):
        raise _other_unfinished(files, begun)
    if yes:
        _finish(files, begun)
    return Performed(act=_act_of(files, begun.record), done=yes, backup=begun.folder, finished=True)


def carry_out(files: Files, act: Act) -> str:
    """Do every step of `act`, and return where the files are kept as they were. Killed at any point it can be finished.

    Raises Refused if an act is unfinished, Retryable if the checkpoint is not what the act was made for.
    """
    unfinished = _unfinished(files)
    if unfinished is not None:
        raise _other_unfinished(files, unfinished)
    _forget_abandoned(files)
    begun = _recorded(files, act)
    _guard(files, begun, "before", begun.record.metadata_before, _numbers(act.newest))
    _finish(files, begun)
    return begun.folder


def undo(files: Files, *, verb: str, yes: bool) -> Undone:
    """Undo the newest act, also an unfinished one: every file is again what it was, byte for byte.

    Without `yes` only say what would be. Raises Refused if there is no act, or it is not of this verb, or Spark or somebody else
    has changed the checkpoint since; CheckpointDamaged if a copy is not what was kept.
    """
    begun = _unfinished(files)
    if begun is None:
        begun = _newest_done(files)
        _require_verb(files, begun, verb)
        _require_as_left(files, begun)
        if yes:
            _guard(files, begun, "after", begun.record.metadata_after, begun.record.newest_after)
    else:
        _require_verb(files, begun, verb)
    if yes:
        _take_back(files, begun)
    record = begun.record
    changed = len(record.steps) + (record.metadata_before != record.metadata_after)
    return Undone(verb=record.verb, sentence=record.sentence, backup=begun.folder, files=changed, done=yes)


def done_acts(files: Files) -> Iterator[str]:
    """Yield the folders of acts that are finished or undone, oldest first."""
    for folder in _folders(files):
        if {_DONE_FILE, _UNDONE_FILE} & set(files.names(folder)):
            yield folder


def places_of_act(files: Files, folder: str) -> list[str]:
    """Return the files of an act in the order in which they can be removed: what says that it is done comes first."""
    first = [f"{folder}/{name}" for name in (_DONE_FILE, _UNDONE_FILE, "act.json")]
    places = list(places_below(files, folder))
    return [place for place in first if place in places] + sorted(set(places) - set(first))


def _recorded(files: Files, act: Act) -> _Begun:
    """Copy what the act changes, as it was and as it will be, and write its record."""
    number = max((int(folder.rpartition("/")[2].partition("-")[0]) for folder in _folders(files)), default=0) + 1
    folder = f"{ACTS}/{number:04}-{act.verb}"
    metadata = next((step for step in act.steps if step.place == _METADATA), None)
    before = _copied(files, folder, _METADATA)
    after = before if metadata is None else _written(files, folder, metadata)
    if metadata is None and before is not None:
        files.write(f"{folder}/after/{_METADATA}", files.read(_METADATA) or b"")
    record = ActRecord(
        verb=act.verb,
        request=act.request,
        sentence=act.sentence,
        written_at_ms=time.time_ns() // 1_000_000,
        metadata_before=before,
        metadata_after=after,
        newest_after=None if act.newest_after is None else _numbers(act.newest_after),
        steps=tuple(_recorded_step(files, folder, step) for step in act.steps if step is not metadata),
    )
    with _RECORD.around():
        files.write(f"{folder}/act.json", encode_act(record))
    return _Begun(folder=folder, record=record)


def _recorded_step(files: Files, folder: str, step: Step) -> RecordedStep:
    before = None if _is_backup(step.place) else _copied(files, folder, step.place)
    if (before is None) is not (step.change is Change.WRITE or _is_backup(step.place)):
        raise _moved(files, f"{step.place} {'is gone' if before is None else 'is there'}")
    after = _written(files, folder, step)
    return RecordedStep(change=step.change, place=step.place, reason=step.reason, before=before, after=after)


def _copied(files: Files, folder: str, place: str) -> Checksum | None:
    """Keep a file as it is, and return its checksum; None if it does not exist."""
    data = files.read(place)
    if data is None:
        return None
    with _KEEP.around():
        files.write(f"{folder}/before/{place}", data)
    return checksum_of(data)


def _written(files: Files, folder: str, step: Step) -> Checksum | None:
    if step.content is None:
        return None
    files.write(f"{folder}/after/{step.place}", step.content)
    return checksum_of(step.content)


def _is_backup(place: str) -> bool:
    """Return whether a file is part of another act, of which nothing is kept."""
    return place.startswith(f"{ACTS}/")


def _numbers(newest: Newest) -> tuple[int, ...]:
    return tuple(-1 if number is None else int(number) for number in (newest.planned, newest.committed))


def _guard(files: Files, begun: _Begun, side: str, metadata: Checksum | None, newest: tuple[int, ...] | None) -> None:
    """Make the checkpoint unreadable for whoever would start on it, until the act is over. Raises Retryable if a query runs."""
    with _GUARD.around():
        files.write(_METADATA, unfinished_text(begun.folder))
    found = _numbers(newest_entries(files))
    if newest is not None and found != newest:
        _release(files, begun.folder, side, metadata)
        raise _moved(files, f"its logs ended with batches {_shown(newest)}, and now end with {_shown(found)}")


def _finish(files: Files, begun: _Begun) -> None:
    for step in begun.record.steps:
        _set(files, step.place, None if step.after is None else _kept(files, begun.folder, "after", step.place, step.after))
    _note(files, begun.folder, _DONE_FILE, instead_of=_UNDONE_FILE)
    _release(files, begun.folder, "after", begun.record.metadata_after)


def _take_back(files: Files, begun: _Begun) -> None:
    for step in reversed(begun.record.steps):
        if not _is_backup(step.place):
            _set(
                files, step.place, None if step.before is None else _kept(files, begun.folder, "before", step.place, step.before)
            )
    _note(files, begun.folder, _UNDONE_FILE, instead_of=_DONE_FILE)
    _release(files, begun.folder, "before", begun.record.metadata_before)


def _set(files: Files, place: str, content: bytes | None) -> None:
    with _CHANGE.around():
        if content is None:
            files.delete(place)
        else:
            files.write(place, content)


def _note(files: Files, folder: str, name: str, *, instead_of: str) -> None:
    with _DONE.around():
        files.write(f"{folder}/{name}", b"{}\n")
    files.delete(f"{folder}/{instead_of}")


def _release(files: Files, folder: str, side: str, metadata: Checksum | None) -> None:
    """Let Spark start again: the last write of an act."""
    content = None if metadata is None else _kept(files, folder, side, _METADATA, metadata)
    with _RELEASE.around():
        if content is None:
            files.delete(_METADATA)
        else:
            files.write(_METADATA, content)


def _kept(files: Files, folder: str, side: str, place: str, expected: Checksum) -> bytes:
    copy = f"{folder}/{side}/{place}"
    data = files.read(copy)
    if data is None or checksum_of(data) != expected:
        raise CheckpointDamaged(
            f"The copy {files.location}/{copy} is {'missing' if data is None else 'not what was kept'}.",
            remedy="Restore that copy from a backup of the checkpoint, and run the command again.",
        )
    return data


def _unfinished(files: Files) -> _Begun | None:
    folder = unfinished_act(files.read(_METADATA) or b"")
    return None if folder is None else _begun(files, folder)


def _begun(files: Files, folder: str) -> _Begun:
    data = files.read(f"{folder}/act.json")
    if data is None:
        raise CheckpointDamaged(
            f"The record {files.location}/{folder}/act.json is missing.",
            remedy="Restore the directory from a backup of the checkpoint, and run the command again.",
        )
    return _Begun(folder=folder, record=decode_act(data, where=f"{files.location}/{folder}/act.json"))


def _folders(files: Files) -> list[str]:
    return [f"{ACTS}/{name}" for name in sorted(files.names(ACTS)) if _FOLDER.fullmatch(name)]


def _newest_done(files: Files) -> _Begun:
    for folder in reversed(_folders(files)):
        names = set(files.names(folder))
        if _DONE_FILE in names and _UNDONE_FILE not in names:
            return _begun(files, folder)
    raise Refused(f"No act on the checkpoint {files.location} can be undone.", remedy="There is nothing to undo.")


def _forget_abandoned(files: Files) -> None:
    """Remove what was copied for acts that were interrupted before they changed anything. Called while none is unfinished."""
    for folder in set(_folders(files)) - set(done_acts(files)):
        for place in places_of_act(files, folder):
            files.delete(place)


def _shown(numbers: tuple[int, ...]) -> str:
    return " and ".join("none" if number < 0 else str(number) for number in numbers)


def _moved(files: Files, what: str) -> Retryable:
    return Retryable(
        f"Somebody changes the checkpoint {files.location} at this moment: {what}.",
        remedy="Stop the query that runs on it, then run the command again.",
    )


def _require_as_left(files: Files, begun: _Begun) -> None:
    """Raise Refused unless the checkpoint is what the act left."""
    for step in begun.record.steps:
        if _is_backup(step.place):
            continue
        data = files.read(step.place)
        if (None if data is None else checksum_of(data)) != step.after:
            raise _gone_on(files, begun, f"{step.place} is not what the act left")
    expected, found = begun.record.newest_after, _numbers(newest_entries(files))
    if expected is not None and found != expected:
        raise _gone_on(files, begun, f"its logs ended with batches {_shown(expected)}, and now end with {_shown(found)}")


def _require_verb(files: Files, begun: _Begun, verb: str) -> None:
    if begun.record.verb == verb:
        return
    whole = PART_OF.get(begun.record.verb)
    raise Refused(
        f"The newest act on the checkpoint {files.location} is no {verb}: {begun.record.sentence}",
        remedy=f"Undo that one first, by `penstock checkpoint {begun.record.verb}` with --undo --yes."
        if whole is None
        else f"It is a part of a `{whole}`, and stays. The files of before are in {files.location}/{begun.folder}/before.",
    )


def _gone_on(files: Files, begun: _Begun, what: str) -> Refused:
    return Refused(
        f"The checkpoint {files.location} was changed since `{begun.record.verb}`, which cannot be undone any more: {what}.",
        remedy=f"The files as they were before are in {files.location}/{begun.folder}/before.",
    )


def _other_unfinished(files: Files, begun: _Begun) -> Refused:
    return Refused(
        f"An act on the checkpoint {files.location} was interrupted: {begun.record.sentence}",
        remedy=finish_remedy(begun.record.verb),
    )


def _act_of(files: Files, record: ActRecord) -> Act:
    """Return what a record says as an act for people."""
    steps = [
        Step(change=step.change, place=step.place, reason=step.reason, size_bytes=found.size_bytes if found else 0)
        for step in record.steps
        for found in [step.after or step.before]
    ]
    return Act(
        verb=record.verb,
        request=record.request,
        location=files.location,
        sentence=record.sentence,
        steps=tuple(steps),
        newest=newest_entries(files),
        newest_after=None,
    )
