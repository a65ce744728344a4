"""A savepoint: a copy of a checkpoint with the checksum of each file, and where ledger and sinks stood, in a directory or store.

```
NAME/checkpoint/…      the copy, a cut at a committed batch
NAME/savepoint.json    the manifest, written last: without it there is no savepoint
```

In a directory, a file that the savepoint made last has with the same content is a hard link to it. A table of RocksDB never
changes, and is a hard link to that of the checkpoint, if both are on one file system. Every savepoint has names of its own for
all of its files, so neither the query nor the end of another savepoint takes anything from it.
"""

import hashlib
import re
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from penstock.checkpoint.act import Act, Draft, Newest, newest_entries
from penstock.checkpoint.act_record import CHECKSUM, Checksum, checksum_of
from penstock.checkpoint.copying import UNFINISHED, Table, copy_checkpoint
from penstock.checkpoint.entries import parse_query_id
from penstock.checkpoint.files import Files, LocalFiles, places_below
from penstock.checkpoint.hadoop_checksum import checksum_name, crc32_in
from penstock.checkpoint.verification import verify_files
from penstock.core.codec.document import decode, encode_document
from penstock.core.codec.entry import TOTALS
from penstock.core.codec.fields import INTEGER, TEXT, Record
from penstock.core.faults import FaultPoint
from penstock.core.model import BatchId, LedgerId, Nonce, PipelineName, Position, QueryId, SinkTotals
from penstock.errors import CheckpointDamaged, Failed, FormatTooNew, LedgerMismatch, Refused, Usage

_FILE = FaultPoint("savepoint.file", "One file of a savepoint is written, or linked.")
_LINK = FaultPoint("savepoint.link", "One table of RocksDB is linked to that of the checkpoint.")
_MANIFEST = FaultPoint("savepoint.manifest", "The manifest of a savepoint is written: from here on it exists.")
_FORGET = FaultPoint("savepoint.forget", "The manifest of a savepoint is removed: from here on it does not exist.")

_FORMAT, _VERSION = "penstock.savepoint", 1
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerPoint:
    """Where a ledger stood: the decision of a batch, at a position, and every decided row up to there by sink and account."""

    pipeline: PipelineName
    ledger_id: LedgerId | None
    position: Position
    nonce: Nonce
    query_id: QueryId
    batch_id: BatchId
    totals: SinkTotals


@dataclass(frozen=True, slots=True, kw_only=True)
class Savepoint:
    """A savepoint, as its manifest says. `files` are places in `NAME/checkpoint`. `checkpoint` is where the original was."""

    name: str
    point: LedgerPoint
    checkpoint: str
    created_at_ms: int
    files: Mapping[str, Checksum]

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files.values())


_POINT = Record(
    LedgerPoint,
    {
        "pipeline": TEXT,
        "ledger_id": TEXT.optional,
        "position": INTEGER,
        "nonce": TEXT,
        "query_id": TEXT,
        "batch_id": INTEGER,
        "totals": TOTALS.by_name.by_name,
    },
)
_SAVEPOINT = Record(
    Savepoint,
    {"name": TEXT, "checkpoint": TEXT, "created_at_ms": INTEGER, "files": CHECKSUM.by_name},
    parts={"point": _POINT},
)


def encode_savepoint(savepoint: Savepoint) -> bytes:
    """Return the bytes of `savepoint.json`."""
    return encode_document(_FORMAT, _VERSION, _SAVEPOINT.fields_of(savepoint))


def decode_savepoint(data: bytes, *, where: str) -> Savepoint:
    """Return the savepoint in a manifest. Raises LedgerMismatch for damage, FormatTooNew."""
    return decode(data, kind=_FORMAT, where=where, readers={_VERSION: _SAVEPOINT.read})


def require_name(name: str) -> None:
    """Raise Usage for a name that no savepoint can have."""
    if _NAME.fullmatch(name) is None:
        raise Usage(
            f"{name!r} is no name of a savepoint: expected letters, digits, `.`, `_` and `-`, at most 100, the first no sign.",
            remedy="Name it before-upgrade, say.",
        )


def find(place: Files, name: str) -> Savepoint | None:
    """Return the savepoint of that name, None if there is none. Raises LedgerMismatch, FormatTooNew, Usage."""
    require_name(name)
    data = place.read(f"{name}/savepoint.json")
    return None if data is None else decode_savepoint(data, where=f"{place.location}/{name}/savepoint.json")


def the(place: Files, name: str) -> Savepoint:
    """Return the savepoint of that name. Raises Failed if there is none, and what `find` raises."""
    found = find(place, name)
    if found is None:
        names = ", ".join(one.name for one in savepoints_in(place))
        raise Failed(
            f"{place.location} has no savepoint {name!r}: it has {names or 'none'}.",
            remedy="Name one of these." if names else "If savepoints were made in another place, give it with --to PLACE.",
        )
    return found


def savepoints_in(place: Files) -> tuple[Savepoint, ...]:
    """Return every savepoint in `place`, oldest first. One whose manifest cannot be read is passed over: `find` says why."""
    found = list[Savepoint]()
    for name in place.names(""):
        if _NAME.fullmatch(name):
            with suppress(LedgerMismatch, FormatTooNew):
                one = find(place, name)
                found += [] if one is None else [one]
    return tuple(sorted(found, key=lambda one: (one.created_at_ms, one.name)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """A copy of a checkpoint that has no manifest yet. `new_files` and `new_bytes`: what the savepoint before did not have."""

    batch_id: BatchId
    query_id: QueryId
    files: Mapping[str, Checksum]
    new_files: int
    new_bytes: int


def copy_into(place: Files, name: str, source: Files) -> Copied:
    """Copy `source` at its newest committed batch; what was interrupted is begun again. The query may run meanwhile.

    Raises Refused if there is a savepoint of that name, and what `copy_checkpoint` raises.
    """
    if find(place, name) is not None:
        raise Refused(f"{place.location} has a savepoint {name!r} already.", remedy="Take another name, or delete that one.")
    earlier = savepoints_in(place)
    target = _Target(place, f"{name}/checkpoint", earlier[-1] if earlier else None)
    if target.read("metadata") is not None:
        target.write("metadata", UNFINISHED)
    copied = copy_checkpoint(source, target, link_table=partial(target.link_table, source))
    return Copied(
        batch_id=copied.batch_id,
        query_id=QueryId(parse_query_id(target.read("metadata") or b"")),
        files=target.written,
        new_files=len(target.copied),
        new_bytes=sum(target.copied.values()),
    )


def seal(place: Files, savepoint: Savepoint) -> None:
    """Write the manifest: from here on the savepoint exists."""
    with _MANIFEST.around():
        place.write(f"{savepoint.name}/savepoint.json", encode_savepoint(savepoint))


def problems(place: Files, savepoint: Savepoint) -> Iterator[str]:
    """Yield what keeps a savepoint from being gone on from: files that are not what was copied, and what Spark would not read."""
    folder = f"{savepoint.name}/checkpoint"
    for name, expected in savepoint.files.items():
        data = place.read(f"{folder}/{name}")
        if data is None:
            yield f"{folder}/{name} is missing"
        elif checksum_of(data) != expected:
            yield f"{folder}/{name} is not what was copied"
    found = set(places_below(place, folder)) - {f"{folder}/{name}" for name in savepoint.files}
    yield from (f"{name} does not belong to it" for name in sorted(found))
    for finding in verify_files(Below(place, folder)).findings:
        if finding.severity.value != "harmless":
            yield finding.meaning.rstrip(".")


def require_whole(place: Files, savepoint: Savepoint) -> None:
    """Raise CheckpointDamaged if the savepoint cannot be gone on from."""
    wrong = list(problems(place, savepoint))
    if wrong:
        raise CheckpointDamaged(
            f"Savepoint {savepoint.name!r} in {place.location} is damaged: {wrong[0]}"
            + (f", and {len(wrong) - 1} more." if len(wrong) > 1 else "."),
            remedy="Take another one: `penstock savepoint list` names them.",
        )


def plan_restore(files: Files, place: Files, savepoint: Savepoint) -> Act:
    """Return the act that makes a checkpoint what a savepoint holds. Reads all of the savepoint into memory."""
    newest = newest_entries(files)  # before anything else is read
    draft, batch_id = Draft(files), savepoint.point.batch_id
    for log in ("offsets", "commits", "sources", "state"):
        for name in places_below(files, log):
            if name not in savepoint.files:
                draft.delete(name, reason="not in the savepoint")
    if ".metadata.crc" in files.names(""):
        draft.delete(".metadata.crc", reason="not in the savepoint")
    for name in savepoint.files:
        draft.write(name, place.read(f"{savepoint.name}/checkpoint/{name}") or b"", reason=f"from savepoint {savepoint.name}")
    return Act(
        verb="restore",
        request={"savepoint": savepoint.name},
        location=files.location,
        sentence=f"The checkpoint becomes that of savepoint {savepoint.name}: Spark runs batch {batch_id + 1} anew.",
        steps=draft.steps(),
        next_batch_id=BatchId(batch_id + 1),
        newest=newest,
        newest_after=Newest(planned=batch_id, committed=batch_id),
    )


def delete(place: Files, name: str) -> int:
    """Delete a savepoint, or what an interrupted one left, and return how many files. Its manifest goes first."""
    require_name(name)
    places = list(places_below(place, name))
    with _FORGET.around():
        place.delete(f"{name}/savepoint.json")
    for one in places:
        place.delete(one)
    remove_directories(place, name)
    return len(places)


def remove_directories(place: Files, name: str) -> None:
    """Remove the directories of a savepoint that has no file any more: a kill can leave them."""
    if isinstance(place, LocalFiles):
        place.remove_empty(name)


class Below:
    """`Files` in one folder of others."""

    def __init__(self, files: Files, folder: str) -> None:
        self._files, self._folder = files, folder

    @property
    def location(self) -> str:
        return f"{self._files.location}/{self._folder}"

    def names(self, folder: str) -> tuple[str, ...]:
        return self._files.names(self._at(folder))

    def sizes(self, folder: str) -> Mapping[str, int | None]:
        return self._files.sizes(self._at(folder))

    def size_bytes(self, name: str) -> int | None:
        return self._files.size_bytes(self._at(name))

    def read(self, name: str, *, start: int = 0, size_bytes: int | None = None) -> bytes | None:
        return self._files.read(self._at(name), start=start, size_bytes=size_bytes)

    def delete(self, name: str) -> None:
        self._files.delete(self._at(name))

    def write(self, name: str, data: bytes) -> None:
        self._files.write(self._at(name), data)

    def _at(self, name: str) -> str:
        return f"{self._folder}/{name}" if name else self._folder


class _Target(Below):
    """Where a checkpoint is copied to: notes the checksum of each file, and links what `earlier` has instead of writing it."""

    def __init__(self, place: Files, folder: str, earlier: Savepoint | None) -> None:
        super().__init__(place, folder)
        self._earlier = earlier
        self.written: dict[str, Checksum] = {}
        self.copied: dict[str, int] = {}
        """Sizes of the files that no earlier savepoint had."""

    def delete(self, name: str) -> None:
        super().delete(name)
        self.written.pop(name, None)
        self.copied.pop(name, None)

    def write(self, name: str, data: bytes) -> None:
        with _FILE.around():
            self.written[name] = checksum_of(data)
            if self._linked(name, data):
                self.copied.pop(name, None)
            else:
                super().write(name, data)
                self.copied[name] = len(data)

    def link_table(self, source: Files, name: str) -> Table | None:
        """Link a table of RocksDB to that of `source`; None if it has to be copied.

        One that the earlier savepoint has in common with `source` is not read: it is the same file.
        """
        files = self._files
        if not isinstance(files, LocalFiles) or not isinstance(source, LocalFiles):
            return None
        with _LINK.around():
            if not files.link(self._at(name), name, of=source):
                return None
            checksum, is_verified = self._known(files, name), True
            if checksum is None:
                checksum, is_verified = _read_once(files, self._at(name), source, name)
                self.copied[name] = checksum.size_bytes
            self.written[name] = checksum
        return Table(size_bytes=checksum.size_bytes, verified=is_verified)

    def _known(self, files: LocalFiles, name: str) -> Checksum | None:
        """Return the checksum of a linked file if the earlier savepoint has the same one, which was verified then."""
        earlier = self._earlier
        if earlier is None or not files.is_link(self._at(name), f"{earlier.name}/checkpoint/{name}"):
            return None
        return earlier.files.get(name)

    def _linked(self, name: str, data: bytes) -> bool:
        """Link the earlier savepoint's file if its bytes are the same: its checksum alone does not tell that they still are."""
        earlier, files = self._earlier, self._files
        if earlier is None or earlier.files.get(name) != self.written[name] or not isinstance(files, LocalFiles):
            return False
        original = f"{earlier.name}/checkpoint/{name}"
        return files.read(original) == data and files.link(self._at(name), original)


def _read_once(files: LocalFiles, place: str, source: Files, name: str) -> tuple[Checksum, bool]:
    """Return the checksum of a file, and whether its content is what its checksum in `source` says."""
    sha256, crc32, size_bytes = hashlib.sha256(), 0, 0
    for block in files.blocks(place):
        sha256.update(block)
        crc32 = zlib.crc32(block, crc32)
        size_bytes += len(block)
    expected = crc32_in(source.read(checksum_name(name)) or b"", size_bytes=size_bytes)
    return Checksum(sha256=sha256.hexdigest(), size_bytes=size_bytes), crc32 == expected
