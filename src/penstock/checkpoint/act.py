"""An operator's act on a checkpoint as a value: each file that it writes, replaces or removes, and why."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum

from penstock.checkpoint.entries import entry_ids
from penstock.checkpoint.files import Files
from penstock.core.model import BatchId, Json

ACTS = "penstock-acts"
"""Directory in a checkpoint with the records and backups of acts. Neither Spark nor the readers here look into it."""


class Change(str, Enum):
    """What a step does to one file."""

    WRITE = "write"
    REPLACE = "replace"
    REMOVE = "remove"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One file that an act changes. `place` is relative to the checkpoint. `size_bytes`: of what is written or removed.

    `content` is None for a file that is removed.
    """

    change: Change
    place: str
    reason: str
    size_bytes: int
    content: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """What an act would do. Nothing is done yet; `penstock.checkpoint.acting` carries it out.

    `verb` and `request` are the command that was given: an act that was interrupted is finished by the same. `sentence` and
    `notes` are for people. `next_batch_id` is what Spark runs first afterwards, None if Spark starts neither before nor after.
    `newest` is what the two logs ended with when the act was made, `newest_after` what they end with afterwards: None if the act
    can be undone although Spark has gone on.
    """

    verb: str
    request: Mapping[str, Json]
    location: str
    sentence: str
    steps: tuple[Step, ...]
    notes: tuple[str, ...] = ()
    next_batch_id: BatchId | None = None
    newest: "Newest"
    newest_after: "Newest | None"


@dataclass(frozen=True, slots=True, kw_only=True)
class Newest:
    """The newest entries of the offset log and of the commit log, None where there is none."""

    planned: BatchId | None
    committed: BatchId | None


def newest_entries(files: Files) -> Newest:
    """Return what the two logs end with. Costs two listings."""
    planned, committed = (max(entry_ids(files.names(log)), default=None) for log in ("offsets", "commits"))
    return Newest(planned=planned, committed=committed)


class Draft:
    """`Files` over those of a checkpoint in which changes are recorded as steps of an act. The files themselves stay as they are.

    A reader sees what it would see after the act, so an act can be verified before anything is written.
    """

    def __init__(self, files: Files) -> None:
        self._files = files
        self._content: dict[str, bytes | None] = {}
        self._reasons: dict[str, str] = {}

    @property
    def location(self) -> str:
        return self._files.location

    def names(self, folder: str) -> tuple[str, ...]:
        changed = dict(self._changed_in(folder))
        if not changed:
            return self._files.names(folder)
        return tuple(self.sizes(folder))

    def sizes(self, folder: str) -> Mapping[str, int | None]:
        found = dict(self._files.sizes(folder))
        for name, content in self._changed_in(folder):
            first, slash, _ = name.partition("/")
            if slash:
                if content is not None:
                    found.setdefault(first, None)
            elif content is None:
                found.pop(first, None)
            else:
                found[first] = len(content)
        return found

    def size_bytes(self, name: str) -> int | None:
        if name not in self._content:
            return self._files.size_bytes(name)
        content = self._content[name]
        return None if content is None else len(content)

    def read(self, name: str, *, start: int = 0, size_bytes: int | None = None) -> bytes | None:
        if name not in self._content:
            return self._files.read(name, start=start, size_bytes=size_bytes)
        content = self._content[name]
        return None if content is None else content[start : None if size_bytes is None else start + size_bytes]

    def delete(self, name: str, *, reason: str = "") -> None:
        """Record that a file is removed."""
        self._content[name] = None
        self._reasons[name] = reason

    def write(self, name: str, data: bytes, *, reason: str = "") -> None:
        """Record that a file is written, or replaced."""
        self._content[name] = data
        self._reasons[name] = reason

    def steps(self) -> tuple[Step, ...]:
        """Return the recorded changes in their order, without those that change nothing."""
        return tuple(self._steps())

    def _steps(self) -> Iterator[Step]:
        for place, content in self._content.items():
            before = self._files.size_bytes(place)
            if content is None and before is not None:
                yield Step(change=Change.REMOVE, place=place, reason=self._reasons[place], size_bytes=before)
            if content is not None and (before != len(content) or self._files.read(place) != content):
                change = Change.WRITE if before is None else Change.REPLACE
                reason = self._reasons[place]
                yield Step(change=change, place=place, reason=reason, size_bytes=len(content), content=content)

    def _changed_in(self, folder: str) -> Iterator[tuple[str, bytes | None]]:
        start = f"{folder}/" if folder else ""
        for place, content in self._content.items():
            if place.startswith(start):
                yield place[len(start) :], content
