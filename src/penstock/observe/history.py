"""The ledger as rows for people: one row per retained entry, newest first."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from penstock.core.backfill import Backfilled, BackfillEnded, BackfillOpened
from penstock.core.dropped_rows import DroppedRows
from penstock.core.model import (
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
    RemovalAccepted,
    Rewound,
    SinkName,
    Totals,
)
from penstock.core.replay import Replayed
from penstock.core.topics import GapAccepted, TopicRead
from penstock.support import formatting


@dataclass(frozen=True, slots=True, kw_only=True)
class PieceCounts:
    """How the pieces of one account were staged: `in_decision` inline in the decision, `staged` written or uploaded before it."""

    in_decision: int = 0
    staged: int = 0

    def __add__(self, other: "PieceCounts") -> "PieceCounts":
        return PieceCounts(in_decision=self.in_decision + other.in_decision, staged=self.staged + other.staged)


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryRow:
    """One entry of the ledger. `kind` is `opened`, `decided`, `adopted`, `removal_accepted`, `rewound`, `backfilled`,
    `replayed`, `backfill_opened` or `backfill_ended`.

    Fields that do not apply are None or empty. Of a `removal_accepted`, `sinks` and `accounts` count what was removed. A
    `backfilled` is an earlier batch, decided again for one sink; a `replayed` are records of the quarantine, delivered after all.

    A decision is written before it is published. So `publish_ms` and `publish_requests` come from the decision after it, and the
    last decision of each run has none. `publish_requests` includes the decision itself. Requests are None where no place bills
    them. `topics` and `gaps` are of sources that are read from Kafka. `taken_back_at` is the position of the rewind that took the
    batch back from every sink that did not keep it. `dropped` are the rows that rules of sources dropped.
    """

    position: Position
    generation: Generation
    kind: str
    written_at_ms: int
    text: str
    batch_id: BatchId | None = None
    query_id: QueryId | None = None
    offsets: tuple[OffsetRange, ...] = ()
    rows_out: int = 0
    sinks: Mapping[SinkName, Totals] = field(default_factory=dict)
    accounts: Mapping[SinkName, Mapping[AccountName, Totals]] = field(default_factory=dict)
    pieces: Mapping[SinkName, Mapping[AccountName, PieceCounts]] = field(default_factory=dict)
    stage_ms: int | None = None
    publish_ms: int | None = None
    stage_requests: int | None = None
    publish_requests: int | None = None
    topics: tuple[TopicRead, ...] = ()
    gaps: tuple[GapAccepted, ...] = ()
    taken_back_at: Position | None = None
    dropped: DroppedRows = field(default_factory=dict)

    @property
    def rows_in(self) -> int:
        """The older name of `rows_out`, the rows that the transform gave."""
        return self.rows_out


def history(newest_first: Iterable[Entry], *, batch_id: BatchId | None = None) -> Iterator[HistoryRow]:
    """Yield rows for the entries of a ledger, lazily; with `batch_id` only the decisions of that batch."""
    after: Decision | None = None
    rewinds: list[tuple[Position, Position]] = []
    for entry in newest_first:
        body = entry.body
        if isinstance(body, Decided):
            row, after = _decided(entry, body.decision, after), body.decision
            taken_back_at = next((at for at, to in rewinds if to < entry.position), None)
            row = row if taken_back_at is None else replace(row, taken_back_at=taken_back_at)
        elif isinstance(body, Opened):
            row = _acted(entry, "opened", f"by {body.owner} on checkpoint {body.checkpoint}")
        elif isinstance(body, RemovalAccepted):
            row = _removed(entry, body)
        elif isinstance(body, Rewound):
            row = _rewound(entry, body)
            rewinds.append((entry.position, body.to))
        elif isinstance(body, Backfilled):
            row = _backfilled(entry, body)
        elif isinstance(body, Replayed):
            row = _replayed(entry, body)
        elif isinstance(body, Adopted):
            query = "a new query" if body.query_id is None else f"query {body.query_id}"
            text = f"{query} from batch {body.next_batch_id} by {body.operator}: {body.reason}"
            row = _acted(entry, "adopted", text, gaps=body.gaps)
        else:
            row = _beside(entry, body)
        if batch_id is None or (row.kind == "decided" and row.batch_id == batch_id):
            yield row


def _acted(entry: Entry, kind: str, text: str, gaps: tuple[GapAccepted, ...] = ()) -> HistoryRow:
    at = entry.written_at_ms
    return HistoryRow(position=entry.position, generation=entry.generation, kind=kind, written_at_ms=at, text=text, gaps=gaps)


def _backfilled(entry: Entry, body: Backfilled) -> HistoryRow:
    decision = body.decision
    rows = decision.totals_of(body.sink).rows
    text = f"batch {decision.batch.batch_id}: {rows} rows for sink {body.sink} alone, decided before at position {body.original}"
    return replace(_decided(entry, decision, None), kind="backfilled", text=text)


def _beside(entry: Entry, body: BackfillOpened | BackfillEnded) -> HistoryRow:
    if isinstance(body, BackfillOpened):
        return _acted(entry, "backfill_opened", f"batches are decided without sink {body.sink} from here on, by {body.owner}")
    since = "takes part from here on" if body.joins else "is to join the next run that has it"
    return _acted(entry, "backfill_ended", f"sink {body.sink} has every batch before this, and {since}")


def _replayed(entry: Entry, body: Replayed) -> HistoryRow:
    records, rows = formatting.counted(body.records, "record"), formatting.counted(body.decision.rows_in, "row")
    were = "was" if body.records == 1 else "were"
    text = f"{records} of the quarantine {were} replayed: {rows}"
    return replace(_decided(entry, body.decision, None), kind="replayed", text=text)


def _removed(entry: Entry, body: RemovalAccepted) -> HistoryRow:
    accounts: dict[SinkName, dict[AccountName, Totals]] = {}
    for removal in body.removals:
        of_sink = accounts.setdefault(removal.sink, {})
        of_sink[removal.account] = of_sink.get(removal.account, Totals()) + removal.totals
    sinks = {sink: sum(of_sink.values(), Totals()) for sink, of_sink in accounts.items()}
    removed = ", ".join(f"{totals.rows} rows of {sink}" for sink, totals in sinks.items())
    unchecked = sum((removal.unchecked for removal in body.removals), Totals())
    left = f", {unchecked.files} files of forgotten batches were taken as they were" if unchecked.files else ""
    text = f"{removed} were removed on purpose{left}, by {body.operator}: {body.reason}"
    return replace(_acted(entry, "removal_accepted", text), sinks=sinks, accounts=accounts)


def _rewound(entry: Entry, body: Rewound) -> HistoryRow:
    kept = f", but not from {', '.join(body.kept)}" if body.kept else ""
    reason = f": {body.reason}" if body.reason else ""
    text = f"every batch after {body.batch_id} was taken back{kept}, by {body.operator}{reason}"
    return replace(_acted(entry, "rewound", text), batch_id=body.batch_id)


def _decided(entry: Entry, decision: Decision, after: Decision | None) -> HistoryRow:
    accounts: dict[SinkName, dict[AccountName, Totals]] = {}
    pieces: dict[SinkName, dict[AccountName, PieceCounts]] = {}
    for piece in decision.staged:
        of_sink, ways = accounts.setdefault(piece.sink, {}), pieces.setdefault(piece.sink, {})
        of_sink[piece.account] = of_sink.get(piece.account, Totals()) + piece.totals
        way = PieceCounts(staged=1) if piece.inline is None else PieceCounts(in_decision=1)
        ways[piece.account] = ways.get(piece.account, PieceCounts()) + way
    return HistoryRow(
        position=entry.position,
        generation=entry.generation,
        kind="decided",
        written_at_ms=entry.written_at_ms,
        text=f"batch {decision.batch.batch_id}: {decision.rows_in} rows",
        batch_id=decision.batch.batch_id,
        query_id=decision.batch.query_id,
        offsets=decision.batch.offsets,
        rows_out=decision.rows_in,
        sinks={sink: sum(of_sink.values(), Totals()) for sink, of_sink in accounts.items()},
        accounts=accounts,
        pieces=pieces,
        stage_ms=decision.stage_ms,
        publish_ms=None if after is None else after.previous_publish_ms,
        stage_requests=decision.stage_requests,
        publish_requests=None if after is None else after.previous_publish_requests,
        topics=decision.evidence.topics,
        gaps=decision.evidence.gaps,
        dropped=decision.dropped,
    )
