"""Ledger entries as JSON, in every version ever written; and the message of a task, which holds staged pieces, too."""

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from penstock.core.codec.document import decode, encode_document
from penstock.core.codec.fields import DamagedError, blob, integer, items, mapping, optional, record, require_fields, text
from penstock.core.codec.topics import of_gaps, of_topics, to_gaps, to_topics
from penstock.core.model import (
    AccountName,
    Adopted,
    Batch,
    BatchId,
    Body,
    Decided,
    Decision,
    Entry,
    Generation,
    Json,
    LedgerId,
    Nonce,
    OffsetRange,
    Opened,
    PipelineName,
    Position,
    QueryId,
    RowDigest,
    SinkName,
    SinkTotals,
    SourceName,
    Staged,
    Summary,
    Totals,
)
from penstock.core.topics import NO_EVIDENCE, Evidence

FORMAT = "penstock.entry"
_PLAIN, _COUNTED, _TOPICS, _NAMED = 1, 2, 3, 4
"""Versions: without and with request counts, then with topics and gaps read from Kafka, then of a ledger with an identity.

Older Penstocks wrote each entry in the oldest version that can hold it. An entry of a ledger with an identity always has the last
version.
"""

_ENTRY_FIELDS = frozenset({"pipeline", "position", "generation", "nonce", "written_at_ms", "body", "summary"})
_DECIDED_FIELDS = frozenset({"kind", "decision"})
_OPENED_FIELDS = frozenset({"kind", "owner", "checkpoint", "pipeline_digest", "sinks", "versions"})
_ADOPTED_FIELDS = frozenset({"kind", "query_id", "next_batch_id", "reason", "operator"})
_DECISION_FIELDS = frozenset(
    {"query_id", "batch_id", "offsets", "staged", "rows_in", "schema", "stage_ms", "previous_publish_ms"}
)
_COUNTED_FIELDS = _DECISION_FIELDS | {"stage_requests", "previous_publish_requests"}
_TOPICS_FIELDS = _COUNTED_FIELDS | {"topics", "gaps"}
_OFFSETS_FIELDS = frozenset({"source", "start", "end", "content"})
_STAGED_FIELDS = frozenset({"sink", "account", "name", "attempt", "totals", "ref", "inline"})
_TOTALS_FIELDS = frozenset({"rows", "files", "size_bytes", "digest"})
_SUMMARY_FIELDS = frozenset({"query_id", "next_batch_id", "decided_at", "published_at", "adopted_at", "totals"})
_NAMED_FIELDS = _SUMMARY_FIELDS | {"ledger_id", "row_digest"}


def encode_entry(entry: Entry) -> bytes:
    """Return the bytes of a ledger entry."""
    version = _version_of(entry)
    fields: dict[str, Json] = {
        "pipeline": entry.pipeline,
        "position": entry.position,
        "generation": entry.generation,
        "nonce": entry.nonce,
        "written_at_ms": entry.written_at_ms,
        "body": _of_body(entry.body, version),
        "summary": _of_summary(entry.summary),
    }
    return encode_document(FORMAT, version, fields)


def decode_entry(data: bytes, *, where: str = "A ledger entry") -> Entry:
    """Return the entry in `data`. Raises LedgerMismatch, FormatTooNew."""
    return decode(data, kind=FORMAT, where=where, readers=_READERS)


def _version_of(entry: Entry) -> int:
    body = entry.body
    if entry.summary.ledger_id is not None:
        return _NAMED
    if isinstance(body, Opened):
        return _PLAIN
    if isinstance(body, Adopted):
        return _TOPICS if body.gaps else _PLAIN
    if body.decision.evidence != NO_EVIDENCE:
        return _TOPICS
    requests = (body.decision.stage_requests, body.decision.previous_publish_requests)
    return _PLAIN if requests == (None, None) else _COUNTED


def _of_body(body: Body, version: int) -> dict[str, Json]:
    if isinstance(body, Decided):
        return {"kind": "decided", "decision": _of_decision(body.decision, version)}
    if isinstance(body, Opened):
        return {
            "kind": "opened",
            "owner": body.owner,
            "checkpoint": body.checkpoint,
            "pipeline_digest": body.pipeline_digest,
            "sinks": list(body.sinks),
            "versions": dict(body.versions),
        }
    return {
        "kind": "adopted",
        "query_id": body.query_id,
        "next_batch_id": body.next_batch_id,
        "reason": body.reason,
        "operator": body.operator,
        **({"gaps": of_gaps(body.gaps)} if version >= _TOPICS else {}),
    }


def _of_decision(decision: Decision, version: int) -> dict[str, Json]:
    batch = decision.batch
    counted: dict[str, Json] = {
        "stage_requests": decision.stage_requests,
        "previous_publish_requests": decision.previous_publish_requests,
    }
    read: dict[str, Json] = {"topics": of_topics(decision.evidence.topics), "gaps": of_gaps(decision.evidence.gaps)}
    return {
        **(counted if version >= _COUNTED else {}),
        **(read if version >= _TOPICS else {}),
        "query_id": batch.query_id,
        "batch_id": batch.batch_id,
        "offsets": [{"source": o.source, "start": o.start, "end": o.end, "content": o.content} for o in batch.offsets],
        "staged": [of_staged(piece) for piece in decision.staged],
        "rows_in": decision.rows_in,
        "schema": decision.schema,
        "stage_ms": decision.stage_ms,
        "previous_publish_ms": decision.previous_publish_ms,
    }


def of_staged(piece: Staged) -> dict[str, Json]:
    """Return one staged piece as JSON fields."""
    return {
        "sink": piece.sink,
        "account": piece.account,
        "name": piece.name,
        "attempt": piece.attempt,
        "totals": _of_totals(piece.totals),
        "ref": dict(piece.ref),
        "inline": None if piece.inline is None else b64encode(piece.inline).decode("ascii"),
    }


def _of_totals(totals: Totals) -> dict[str, Json]:
    return {
        "rows": totals.rows,
        "files": totals.files,
        "size_bytes": totals.size_bytes,
        "digest": f"{totals.digest:016x}",
    }


def _of_summary(summary: Summary) -> dict[str, Json]:
    named: dict[str, Json] = {"ledger_id": summary.ledger_id, "row_digest": summary.row_digest.value}
    return {
        **(named if summary.ledger_id is not None else {}),
        "query_id": summary.query_id,
        "next_batch_id": summary.next_batch_id,
        "decided_at": summary.decided_at,
        "published_at": summary.published_at,
        "adopted_at": summary.adopted_at,
        "totals": {
            sink: {account: _of_totals(totals) for account, totals in accounts.items()}
            for sink, accounts in summary.totals.items()
        },
    }


def _entry(
    fields: dict[str, Any],
    *,
    decision_fields: frozenset[str],
    adopted_fields: frozenset[str] = _ADOPTED_FIELDS,
    summary_fields: frozenset[str] = _SUMMARY_FIELDS,
) -> Entry:
    require_fields(fields, _ENTRY_FIELDS)
    return Entry(
        pipeline=PipelineName(text(fields["pipeline"])),
        position=Position(integer(fields["position"])),
        generation=Generation(integer(fields["generation"])),
        nonce=Nonce(text(fields["nonce"])),
        written_at_ms=integer(fields["written_at_ms"]),
        body=_body(fields["body"], decision_fields, adopted_fields),
        summary=_summary(record(fields["summary"], summary_fields)),
    )


def _body(value: object, decision_fields: frozenset[str], adopted_fields: frozenset[str]) -> Body:
    kind = value.get("kind") if isinstance(value, dict) else None
    if kind == "decided":
        return Decided(decision=_decision(record(record(value, _DECIDED_FIELDS)["decision"], decision_fields)))
    if kind == "opened":
        return _opened(record(value, _OPENED_FIELDS))
    if kind == "adopted":
        return _adopted(record(value, adopted_fields))
    raise DamagedError(f"expected an entry of kind opened, decided or adopted, found {kind!r}")


def _opened(fields: dict[str, Any]) -> Opened:
    return Opened(
        owner=text(fields["owner"]),
        checkpoint=text(fields["checkpoint"]),
        pipeline_digest=text(fields["pipeline_digest"]),
        sinks=tuple(SinkName(text(sink)) for sink in items(fields["sinks"])),
        versions={name: text(version) for name, version in mapping(fields["versions"]).items()},
    )


def _adopted(fields: dict[str, Any]) -> Adopted:
    return Adopted(
        query_id=cast("QueryId | None", optional(text, fields["query_id"])),
        next_batch_id=BatchId(integer(fields["next_batch_id"])),
        reason=text(fields["reason"]),
        operator=text(fields["operator"]),
        gaps=to_gaps(fields.get("gaps", [])),
    )


def _decision(fields: dict[str, Any]) -> Decision:
    return Decision(
        batch=Batch(
            query_id=QueryId(text(fields["query_id"])),
            batch_id=BatchId(integer(fields["batch_id"])),
            offsets=tuple(_offset_range(item) for item in items(fields["offsets"])),
        ),
        staged=tuple(to_staged(item) for item in items(fields["staged"])),
        rows_in=integer(fields["rows_in"]),
        schema=text(fields["schema"]),
        stage_ms=integer(fields["stage_ms"]),
        previous_publish_ms=optional(integer, fields["previous_publish_ms"]),
        stage_requests=optional(integer, fields.get("stage_requests")),
        previous_publish_requests=optional(integer, fields.get("previous_publish_requests")),
        evidence=Evidence(topics=to_topics(fields.get("topics", [])), gaps=to_gaps(fields.get("gaps", []))),
    )


def _offset_range(value: object) -> OffsetRange:
    fields = record(value, _OFFSETS_FIELDS)
    return OffsetRange(
        source=SourceName(text(fields["source"])),
        start=optional(text, fields["start"]),
        end=optional(text, fields["end"]),
        content=optional(text, fields["content"]),
    )


def to_staged(value: object) -> Staged:
    """Return the staged piece that `of_staged` wrote. Raises DamagedError."""
    fields = record(value, _STAGED_FIELDS)
    return Staged(
        sink=SinkName(text(fields["sink"])),
        account=AccountName(text(fields["account"])),
        name=text(fields["name"]),
        attempt=text(fields["attempt"]),
        totals=_totals(fields["totals"]),
        ref=mapping(fields["ref"]),
        inline=optional(blob, fields["inline"]),
    )


def _totals(value: object) -> Totals:
    fields = record(value, _TOTALS_FIELDS)
    digest = text(fields["digest"])
    if len(digest) != 16 or digest.strip("0123456789abcdef"):
        raise DamagedError(f"expected a digest of 16 hexadecimal digits, found {digest[:40]!r}")
    return Totals(
        rows=integer(fields["rows"]),
        files=integer(fields["files"]),
        size_bytes=integer(fields["size_bytes"]),
        digest=int(digest, 16),
    )


def _summary(fields: dict[str, Any]) -> Summary:
    return Summary(
        ledger_id=LedgerId(text(fields["ledger_id"])) if "ledger_id" in fields else None,
        row_digest=_row_digest(text(fields["row_digest"])) if "row_digest" in fields else RowDigest.XXHASH64,
        query_id=cast("QueryId | None", optional(text, fields["query_id"])),
        next_batch_id=cast("BatchId | None", optional(integer, fields["next_batch_id"])),
        decided_at=cast("Position | None", optional(integer, fields["decided_at"])),
        published_at=cast("Position | None", optional(integer, fields["published_at"])),
        adopted_at=cast("Position | None", optional(integer, fields["adopted_at"])),
        totals=_sink_totals(fields["totals"]),
    )


def _row_digest(name: str) -> RowDigest:
    try:
        return RowDigest(name)
    except ValueError:
        raise DamagedError(f"expected a kind of digest among {', '.join(RowDigest)}, found {name[:40]!r}") from None


def _sink_totals(value: object) -> SinkTotals:
    return {
        SinkName(sink): {AccountName(account): _totals(totals) for account, totals in mapping(accounts).items()}
        for sink, accounts in mapping(value).items()
    }


_READERS = {
    _PLAIN: partial(_entry, decision_fields=_DECISION_FIELDS),
    _COUNTED: partial(_entry, decision_fields=_COUNTED_FIELDS),
    _TOPICS: partial(_entry, decision_fields=_TOPICS_FIELDS, adopted_fields=_ADOPTED_FIELDS | {"gaps"}),
    _NAMED: partial(
        _entry, decision_fields=_TOPICS_FIELDS, adopted_fields=_ADOPTED_FIELDS | {"gaps"}, summary_fields=_NAMED_FIELDS
    ),
}


_KIND, _VERSION = "penstock.message", 2


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskMessage:
    """One task's result, never stored: staged pieces, rows, their size in Arrow, and requests (None: nothing counts them)."""

    pieces: tuple[Staged, ...]
    rows: int
    size_bytes: int
    requests: int | None


def encode_message(pieces: Sequence[Staged], *, rows: int, size_bytes: int, requests: int | None) -> bytes:
    """Return the bytes that a task yields."""
    staged: list[Json] = [of_staged(piece) for piece in pieces]
    fields: dict[str, Json] = {"pieces": staged, "rows": rows, "size_bytes": size_bytes, "requests": requests}
    return encode_document(_KIND, _VERSION, fields)


def decode_message(data: bytes) -> TaskMessage:
    """Return a task's message. Raises LedgerMismatch for other bytes, FormatTooNew if executors run a newer Penstock."""
    return decode(data, kind=_KIND, where="A task's message", readers={1: _message, _VERSION: _message})


def _message(fields: dict[str, Any]) -> TaskMessage:
    return TaskMessage(
        pieces=tuple(to_staged(item) for item in items(fields["pieces"])),
        rows=integer(fields["rows"]),
        size_bytes=integer(fields["size_bytes"]),
        requests=optional(integer, fields.get("requests")),
    )
