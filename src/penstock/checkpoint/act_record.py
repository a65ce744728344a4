"""The durable record of an act on a checkpoint: what each file was before and what it is afterwards, as JSON."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.checkpoint.act import Change
from penstock.core.codec.document import decode, encode_document
from penstock.core.codec.fields import INTEGER, OBJECT, TEXT, Record, choice
from penstock.core.model import Json

_FORMAT, _VERSION = "penstock.checkpoint_act", 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Checksum:
    """What identifies the content of one file."""

    sha256: str
    size_bytes: int


def checksum_of(data: bytes) -> Checksum:
    """Return the checksum of a file's content."""
    return Checksum(sha256=hashlib.sha256(data).hexdigest(), size_bytes=len(data))


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedStep:
    """One file that the act changes. `before` is None for a file that did not exist, `after` for one that is removed."""

    change: Change
    place: str
    reason: str
    before: Checksum | None
    after: Checksum | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ActRecord:
    """An act, as it is written beside the copies of the files before any of them is changed.

    `steps` never has `metadata`, which is written last. `newest_after`: the newest planned and committed batches after the act,
    -1 for none; None where it does not matter whether Spark has gone on since.
    """

    verb: str
    request: Mapping[str, Json]
    sentence: str
    written_at_ms: int
    metadata_before: Checksum | None
    metadata_after: Checksum | None
    newest_after: tuple[int, ...] | None
    steps: tuple[RecordedStep, ...]


CHECKSUM = Record(Checksum, {"sha256": TEXT, "size_bytes": INTEGER})
_STEP = Record(
    RecordedStep,
    {
        "change": choice(Change, "a change of a file"),
        "place": TEXT,
        "reason": TEXT,
        "before": CHECKSUM.optional,
        "after": CHECKSUM.optional,
    },
)
_RECORD = Record(
    ActRecord,
    {
        "verb": TEXT,
        "request": OBJECT,
        "sentence": TEXT,
        "written_at_ms": INTEGER,
        "metadata_before": CHECKSUM.optional,
        "metadata_after": CHECKSUM.optional,
        "newest_after": INTEGER.listed.optional,
        "steps": _STEP.listed,
    },
)


def encode_act(record: ActRecord) -> bytes:
    """Return the bytes of `act.json`."""
    return encode_document(_FORMAT, _VERSION, _RECORD.fields_of(record))


def decode_act(data: bytes, *, where: str) -> ActRecord:
    """Return the record in `data`. Raises LedgerMismatch for damage, FormatTooNew."""
    return decode(data, kind=_FORMAT, where=where, readers={_VERSION: _RECORD.read})
