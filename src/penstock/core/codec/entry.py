"""Ledger entries as JSON, in every version ever written; and the message of a task, which holds staged pieces, too."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.core.backfill import Backfilled, BackfillEnded, BackfillOpened, BackfillProgress
from penstock.core.codec.document import decode, encode_document
from penstock.core.codec.fields import (
    BLOB,
    FLAG,
    INTEGER,
    OBJECT,
    TEXT,
    DamagedError,
    Field,
    Record,
    choice,
    integer,
    items,
    text,
)
from penstock.core.codec.topics import FILES, GAP, TOPIC
from penstock.core.model import (
    Adopted,
    Batch,
    Body,
    Decided,
    Decision,
    Entry,
    OffsetRange,
    Opened,
    Position,
    Removal,
    RemovalAccepted,
    Rewound,
    RowDigest,
    Staged,
    Summary,
    Totals,
)
from penstock.core.replay import Replayed
from penstock.core.topics import NO_EVIDENCE, Evidence

FORMAT = "penstock.entry"
_PLAIN, _COUNTED, _TOPICS, _NAMED, _SELECTED, _REMOVED, _REWOUND, _FILES, _BACKFILLED, _DROPPED, _REPLAYED, _BESIDE = range(1, 13)
"""Version 2 adds request counts; 3 topics read from Kafka, and gaps; 4 the ledger's identity; 5 the schemas of sinks that take a
selection of the rows; 6 what was removed on purpose; 7 what was rewound; 8 the files that a batch read; 9 earlier batches that a
sink was given; 10 how many rows were dropped; 11 records of the quarantine that were replayed, and how many rows were read; 12
backfills beside a driver.

Older Penstocks wrote each entry in the oldest version that can hold it. An entry of a ledger with an identity has version 4, or
5 if a sink takes a selection, 6 from the first `removal_accepted` on, 7 from the first `rewound` on, 9 from the first
`backfilled` on, 10 from the first dropped row on, 11 from the first `replayed` on, or 12 from the first `backfill_opened` on; a
decision of a batch that read files has at least 8, and one that counts the rows that were read has 11.
"""


def encode_entry(entry: Entry) -> bytes:
    """Return the bytes of a ledger entry."""
    version = _version_of(entry)
    return encode_document(FORMAT, version, _ENTRIES[version].fields_of(entry))


def decode_entry(data: bytes, *, where: str = "A ledger entry") -> Entry:
    """Return the entry in `data`. Raises LedgerMismatch, FormatTooNew."""
    return decode(data, kind=FORMAT, where=where, readers={version: entry.read for version, entry in _ENTRIES.items()})


def _version_of(entry: Entry) -> int:
    """Return the oldest version that can hold `entry`."""
    body, summary = entry.body, entry.summary
    decision = body.decision if isinstance(body, Decided) else None
    needs = {
        _BESIDE: any(progress.writer is not None for progress in summary.backfills.values()),
        _REPLAYED: summary.replayed_at is not None or _counts_rows_read(body),
        _DROPPED: bool(summary.dropped),
        _BACKFILLED: isinstance(body, Backfilled) or bool(summary.backfills),
        _FILES: decision is not None and bool(decision.evidence.files),
        _REWOUND: isinstance(body, Rewound) or summary.rewound_at is not None,
        _REMOVED: isinstance(body, RemovalAccepted) or summary.removed_at is not None,
        _SELECTED: decision is not None and bool(decision.schemas),
        _NAMED: summary.ledger_id is not None,
    }
    newest = next((version for version, is_needed in needs.items() if is_needed), None)
    return _version_without_identity(body) if newest is None else newest


def _counts_rows_read(body: Body) -> bool:
    return isinstance(body, Decided | Backfilled | Replayed) and bool(body.decision.rows_read)


def _version_without_identity(body: Body) -> int:
    if isinstance(body, Adopted):
        return _TOPICS if body.gaps else _PLAIN
    if not isinstance(body, Decided):
        return _PLAIN
    if body.decision.evidence != NO_EVIDENCE:
        return _TOPICS
    requests = (body.decision.stage_requests, body.decision.previous_publish_requests)
    return _PLAIN if requests == (None, None) else _COUNTED


def _digest(value: object) -> int:
    digest = text(value)
    if len(digest) != 16 or digest.strip("0123456789abcdef"):
        raise DamagedError(f"expected a digest of 16 hexadecimal digits, found {digest[:40]!r}")
    return int(digest, 16)


TOTALS = Record(
    Totals,
    {"rows": INTEGER, "files": INTEGER, "size_bytes": INTEGER, "digest": Field(lambda digest: f"{digest:016x}", _digest)},
)
_STAGED = Record(
    Staged,
    {
        "sink": TEXT,
        "account": TEXT,
        "name": TEXT,
        "attempt": TEXT,
        "totals": TOTALS,
        "ref": OBJECT,
        "inline": BLOB.optional,
    },
)
_OFFSETS = Record(OffsetRange, {"source": TEXT, "start": TEXT.optional, "end": TEXT.optional, "content": TEXT.optional})
_BATCH = Record(Batch, {"query_id": TEXT, "batch_id": INTEGER, "offsets": _OFFSETS.listed})
_OPENED = Record(
    Opened,
    {"owner": TEXT, "checkpoint": TEXT, "pipeline_digest": TEXT, "sinks": TEXT.listed, "versions": TEXT.by_name},
    kind="opened",
)
_ADOPTED_FIELDS: Mapping[str, Field[Any]] = {
    "query_id": TEXT.optional,
    "next_batch_id": INTEGER,
    "reason": TEXT,
    "operator": TEXT,
}


_ROWS_BY_RULE = INTEGER.by_name.by_name


def _range(value: object) -> tuple[Position, Position]:
    ends = [Position(integer(end)) for end in items(value)]
    if len(ends) != 2:
        raise DamagedError(f"expected the first and the last position of a range, found {len(ends)} numbers")
    return ends[0], ends[1]


_REMOVAL = Record(
    Removal,
    {
        "sink": TEXT,
        "account": TEXT,
        "decided": Field(list, _range).listed,
        "files": TEXT.listed,
        "totals": TOTALS,
        "unchecked": TOTALS,
    },
)
_REMOVAL_ACCEPTED = Record(
    RemovalAccepted, {"removals": _REMOVAL.listed, "reason": TEXT, "operator": TEXT}, kind="removal_accepted"
)
_REWOUND_BODY = Record(
    Rewound, {"batch_id": INTEGER, "to": INTEGER, "kept": TEXT.listed, "reason": TEXT, "operator": TEXT}, kind="rewound"
)


_POSITIONS = dict.fromkeys(("first", "through", "newest"), INTEGER)
_PROGRESS_FIELDS: Mapping[str, Field[Any]] = {**_POSITIONS, "ended": FLAG}
_PROGRESS = Record(BackfillProgress, _PROGRESS_FIELDS)
_PROGRESS_BESIDE = Record(
    BackfillProgress,
    {**_PROGRESS_FIELDS, "writer": TEXT.optional, "apart": FLAG, "lacking": INTEGER.optional, "awaited": FLAG},
)
_BESIDE_BODIES: Mapping[type[Body], Record[Any]] = {
    BackfillOpened: Record(BackfillOpened, {"sink": TEXT, "writer": TEXT, "owner": TEXT}, kind="backfill_opened"),
    BackfillEnded: Record(BackfillEnded, {"sink": TEXT, "joins": FLAG}, kind="backfill_ended"),
}


def _entry_of(version: int) -> Record[Entry]:
    """Return the record that reads and writes an entry in a document of `version`."""
    gaps = {"gaps": GAP.listed} if version >= _TOPICS else {}
    removal: Mapping[type[Body], Record[Any]] = {RemovalAccepted: _REMOVAL_ACCEPTED} if version >= _REMOVED else {}
    rewound: Mapping[type[Body], Record[Any]] = {Rewound: _REWOUND_BODY} if version >= _REWOUND else {}
    decision = _decision_of(version, gaps)
    bodies: Mapping[type[Body], Record[Any]] = {
        Opened: _OPENED,
        Decided: Record(Decided, {"decision": decision}, kind="decided"),
        Adopted: Record(Adopted, {**_ADOPTED_FIELDS, **gaps}, kind="adopted"),
        **removal,
        **rewound,
        **({Backfilled: _backfilled_of(decision)} if version >= _BACKFILLED else {}),
        **({Replayed: _replayed_of(decision)} if version >= _REPLAYED else {}),
        **(_BESIDE_BODIES if version >= _BESIDE else {}),
    }
    return Record(
        Entry,
        {
            "pipeline": TEXT,
            "position": INTEGER,
            "generation": INTEGER,
            "nonce": TEXT,
            "written_at_ms": INTEGER,
            "body": _one_of(bodies),
            "summary": _summary_of(version),
        },
    )


def _decision_of(version: int, gaps: Mapping[str, Field[Any]]) -> Record[Decision]:
    topics: Mapping[str, Field[Any]] = {"topics": TOPIC.listed} if version >= _TOPICS else {}
    files: Mapping[str, Field[Any]] = {"files": FILES.listed} if version >= _FILES else {}
    schemas: Mapping[str, Field[Any]] = {"schemas": TEXT.by_name} if version >= _SELECTED else {}
    dropped: Mapping[str, Field[Any]] = {"dropped": _ROWS_BY_RULE} if version >= _DROPPED else {}
    rows_read: Mapping[str, Field[Any]] = {"rows_read": INTEGER.by_name} if version >= _REPLAYED else {}
    requests = dict.fromkeys(("stage_requests", "previous_publish_requests"), INTEGER.optional) if version >= _COUNTED else {}
    return Record(
        Decision,
        {
            "staged": _STAGED.listed,
            "rows_in": INTEGER,
            "schema": TEXT,
            "stage_ms": INTEGER,
            "previous_publish_ms": INTEGER.optional,
            **requests,
            **schemas,
            **dropped,
            **rows_read,
        },
        parts={"batch": _BATCH, "evidence": Record(Evidence, {**topics, **gaps, **files})},
    )


def _backfilled_of(decision: Record[Decision]) -> Record[Backfilled]:
    fields: Mapping[str, Field[Any]] = {"sink": TEXT, "original": INTEGER, "previous": INTEGER, "decision": decision}
    return Record(Backfilled, fields, kind="backfilled")


def _replayed_of(decision: Record[Decision]) -> Record[Replayed]:
    return Record(Replayed, {"records": INTEGER, "previous": INTEGER, "decision": decision}, kind="replayed")


def _one_of(records: Mapping[type[Body], Record[Any]]) -> Field[Body]:
    """Return the field of a value that is one of `records`: written by the value's class, read by the field `kind`."""

    def read(value: object) -> Body:
        kind = value.get("kind") if isinstance(value, dict) else None
        found = next((each for each in records.values() if each.kind == kind), None)
        if found is None:
            *kinds, last = (str(each.kind) for each in records.values())
            raise DamagedError(f"expected an entry of kind {', '.join(kinds)} or {last}, found {kind!r}")
        body: Body = found.read(value)
        return body

    return Field(lambda body: records[type(body)].write(body), read)


def _summary_of(version: int) -> Record[Summary]:
    row_digest = choice(RowDigest, f"a kind of digest among {', '.join(RowDigest)}")
    named: Mapping[str, Field[Any]] = {"ledger_id": TEXT, "row_digest": row_digest} if version >= _NAMED else {}
    sums = TOTALS.by_name.by_name
    removed: Mapping[str, Field[Any]] = {"removed": sums, "removed_at": INTEGER.optional} if version >= _REMOVED else {}
    rewinds: Mapping[str, Field[Any]] = {
        "rewound_at": INTEGER.optional,
        "rewinding_at": INTEGER.optional,
        "ahead": INTEGER.by_name,
    }
    rewound: Mapping[str, Field[Any]] = rewinds if version >= _REWOUND else {}
    backfills: Mapping[str, Field[Any]] = (
        {"backfills": (_PROGRESS_BESIDE if version >= _BESIDE else _PROGRESS).by_name} if version >= _BACKFILLED else {}
    )
    dropped: Mapping[str, Field[Any]] = {"dropped": _ROWS_BY_RULE} if version >= _DROPPED else {}
    positions = dict.fromkeys(("next_batch_id", "decided_at", "published_at", "adopted_at"), INTEGER.optional)
    replays = dict.fromkeys(("replayed_at", "replaying_at"), INTEGER.optional) if version >= _REPLAYED else {}
    since = {**named, **removed, **rewound, **backfills, **dropped, **replays}
    return Record(Summary, {"query_id": TEXT.optional, **positions, "totals": sums, **since})


_ENTRIES = {version: _entry_of(version) for version in range(_PLAIN, _BESIDE + 1)}


_KIND, _VERSION = "penstock.message", 2


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskMessage:
    """One task's result, never stored: staged pieces, rows, their size in Arrow, and requests (None: nothing counts them)."""

    pieces: tuple[Staged, ...]
    rows: int
    size_bytes: int
    requests: int | None = None


_MESSAGE_FIELDS: Mapping[str, Field[Any]] = {"pieces": _STAGED.listed, "rows": INTEGER, "size_bytes": INTEGER}
_MESSAGE = Record(TaskMessage, {**_MESSAGE_FIELDS, "requests": INTEGER.optional})


def encode_message(pieces: Sequence[Staged], *, rows: int, size_bytes: int, requests: int | None) -> bytes:
    """Return the bytes that a task yields."""
    message = TaskMessage(pieces=tuple(pieces), rows=rows, size_bytes=size_bytes, requests=requests)
    return encode_document(_KIND, _VERSION, _MESSAGE.fields_of(message))


def decode_message(data: bytes) -> TaskMessage:
    """Return a task's message. Raises LedgerMismatch for other bytes, FormatTooNew if executors run a newer Penstock."""
    readers = {1: Record(TaskMessage, _MESSAGE_FIELDS).read, _VERSION: _MESSAGE.read}
    return decode(data, kind=_KIND, where="A task's message", readers=readers)
