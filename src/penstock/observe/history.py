"""The ledger as rows for people: one row per retained entry, newest first."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from penstock.model import (
    AccountName,
    Adopted,
    BatchId,
    Decided,
    Decision,
    Entry,
    Generation,
    OffsetRange,
    Opened,
    Position,
    QueryId,
    SinkName,
    Totals,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryRow:
    """One entry of the ledger. `kind` is `opened`, `decided` or `adopted`; fields that do not apply are None or empty.

    `publish_ms` comes from the entry after it (a decision is written before it is published), so the newest one has none.
    """

    position: Position
    generation: Generation
    kind: str
    written_at_ms: int
    text: str
    batch_id: BatchId | None = None
    query_id: QueryId | None = None
    offsets: tuple[OffsetRange, ...] = ()
    rows_in: int = 0
    sinks: Mapping[SinkName, Totals] = field(default_factory=dict)
    accounts: Mapping[SinkName, Mapping[AccountName, Totals]] = field(default_factory=dict)
    stage_ms: int | None = None
    publish_ms: int | None = None


def history(newest_first: Iterable[Entry], *, batch_id: BatchId | None = None) -> Iterator[HistoryRow]:
    """Rows for the entries of a ledger, lazily; with `batch_id` only the decisions of that batch."""
    publish_ms: int | None = None
    for entry in newest_first:
        row = _row(entry, publish_ms)
        if isinstance(entry.body, Decided):
            publish_ms = entry.body.decision.previous_publish_ms
        if batch_id is None or (row.kind == "decided" and row.batch_id == batch_id):
            yield row


def _row(entry: Entry, publish_ms: int | None) -> HistoryRow:
    body = entry.body
    if isinstance(body, Decided):
        return _decided(entry, body.decision, publish_ms)
    if isinstance(body, Opened):
        return _plain(entry, "opened", f"by {body.owner} on checkpoint {body.checkpoint}")
    return _adopted(entry, body)


def _plain(entry: Entry, kind: str, text: str) -> HistoryRow:
    return HistoryRow(
        position=entry.position, generation=entry.generation, kind=kind, written_at_ms=entry.written_at_ms, text=text
    )


def _adopted(entry: Entry, body: Adopted) -> HistoryRow:
    query = "a new query" if body.query_id is None else f"query {body.query_id}"
    return _plain(entry, "adopted", f"{query} from batch {body.next_batch_id} by {body.operator}: {body.reason}")


def _decided(entry: Entry, decision: Decision, publish_ms: int | None) -> HistoryRow:
    accounts: dict[SinkName, dict[AccountName, Totals]] = {}
    for piece in decision.staged:
        of_sink = accounts.setdefault(piece.sink, {})
        of_sink[piece.account] = of_sink.get(piece.account, Totals()) + piece.totals
    return HistoryRow(
        position=entry.position,
        generation=entry.generation,
        kind="decided",
        written_at_ms=entry.written_at_ms,
        text=f"batch {decision.batch.batch_id}: {decision.rows_in} rows",
        batch_id=decision.batch.batch_id,
        query_id=decision.batch.query_id,
        offsets=decision.batch.offsets,
        rows_in=decision.rows_in,
        sinks={sink: sum(of_sink.values(), Totals()) for sink, of_sink in accounts.items()},
        accounts=accounts,
        stage_ms=decision.stage_ms,
        publish_ms=publish_ms,
    )
