"""The status of a pipeline, read at constant cost from its ledger's tail and, if possible, Spark's checkpoint."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from penstock.core.dropped_rows import DroppedRows
from penstock.core.model import (
    AccountName,
    Adopted,
    BatchId,
    Entry,
    Generation,
    Opened,
    Position,
    QueryId,
    SinkName,
    SinkTotals,
    SourceName,
    Totals,
)
from penstock.observe.driver import Driver, driver_of
from penstock.observe.last_error import LastError, LastFence
from penstock.observe.state_size import StateSize
from penstock.observe.supervision import Supervision
from penstock.protocols import Ledger
from penstock.source.chain.lag import TableLag
from penstock.source.journal.journals import JournalLag
from penstock.source.kafka.lag import TopicLag
from penstock.source.kinesis.lag import StreamLag


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointPosition:
    """What Spark's checkpoint holds: the newest planned batch and the newest committed one, from which the next one follows."""

    query_id: QueryId | None
    planned: BatchId | None
    committed: BatchId | None

    @property
    def next_batch_id(self) -> BatchId:
        """The batch that Spark runs at the next start."""
        if self.planned is None:
            return BatchId(0)
        return self.planned if self.is_replay else BatchId(self.planned + 1)

    @property
    def is_replay(self) -> bool:
        """Whether Spark will run a batch again that it planned before."""
        return self.planned is not None and (self.committed is None or self.committed < self.planned)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceState:
    """One account of a sink as its own marker describes it; `account` None stands for the whole sink.

    `mark` is the marker's position in the ledger. `state` is `own` (this ledger's), `empty` (nothing was published there),
    `foreign` (another ledger filled it), `ahead` (of this ledger, which is an older copy), `lost` (what was published is not
    there) or `unreachable`. `trouble` explains the last four. `lacks`: `access` where a login or token is refused. A place that
    is `lost` and has a `mark` has lost the directory that readers read, and a start makes it anew.
    """

    sink: SinkName
    account: AccountName | None
    state: str
    mark: Position | None = None
    trouble: str | None = None
    lacks: str = ""

    @property
    def lets_start(self) -> bool:
        """Whether a start goes on with a place that is lost: its marker stands, so that nothing is published twice."""
        return self.state == "lost" and self.mark is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingFiles:
    """Files of one source that no batch has planned. `oldest_ms` is when the oldest was modified last, None without files."""

    source: SourceName
    files: int
    size_bytes: int
    oldest_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """The status of one pipeline. `health` is `new`, `ok`, `replay` or `conflict`; `text` explains it in a sentence.

    `unsettled` is a decided batch that the ledger does not record yet as published in every sink. `lacking` names the places that
    lack it, as `SINK ACCOUNT`; None where that is not known. `batches` is how many were decided, None after an adoption, which
    may have skipped some. `waiting` is of file sources; `lag_unknown` and `waiting_unknown` name what could not be counted.
    """

    pipeline: str
    ledger: str
    health: str
    text: str
    generation: Generation | None
    owner: str | None
    last_batch_id: BatchId | None
    unsettled: BatchId | None
    last_written_at_ms: int | None
    tail: Position | None
    totals: Mapping[SinkName, Mapping[AccountName, Totals]]
    checkpoint: CheckpointPosition | None
    driver: Driver | None = None
    opened_at_ms: int | None = None
    batches: int | None = None
    lacking: tuple[str, ...] | None = None
    last_error: LastError | None = None
    last_fence: LastFence | None = None
    supervision: Supervision | None = None
    standby: Supervision | None = None
    waiting: tuple[WaitingFiles, ...] = ()
    waiting_unknown: tuple[str, ...] = ()
    lag: tuple[TopicLag, ...] = ()
    journals: tuple[JournalLag, ...] = ()
    tables: tuple[TableLag, ...] = ()
    """The lag behind tables of other pipelines."""
    streams: tuple[StreamLag, ...] = ()
    """The lag behind streams of Kinesis."""
    lag_unknown: tuple[str, ...] = ()
    """The reason for each source whose lag could not be found out."""
    places: tuple[PlaceState, ...] = ()
    removed: SinkTotals = field(default_factory=dict)
    """The part of `totals` whose files an operator accepted as removed on purpose."""
    ahead: Mapping[SinkName, BatchId] = field(default_factory=dict)
    """Sinks that kept batches that were taken back from the others, each with the newest one that it has."""
    dropped: DroppedRows = field(default_factory=dict)
    """All rows ever that rules of the sources dropped."""
    replaying: Position | None = None
    """Where rows were decided beside the query's batches, by a replay, that the ledger does not record yet as published."""
    state: StateSize | None = None
    """What the query keeps from batch to batch; None if it keeps nothing, or nobody noted it."""

    @property
    def published(self) -> bool | None:
        """Whether every sink shows the newest batch, and what was replayed; None if that is not known."""
        if self.replaying is not None:
            return False
        if self.unsettled is None:
            return True
        return None if self.lacking is None else not self.lacking

    def lacks(self, what: str) -> bool:
        """Return whether the newest run ended, or a place does not answer, for want of `room` or `access`."""
        error = self.last_error
        ended = error is not None and error.lacks == what and error.at_ms >= (self.last_written_at_ms or 0)
        return ended or any(place.lacks == what for place in self.places)

    @property
    def failure(self) -> LastError | None:
        """The error that ended the newest run; None if a driver runs, or the ledger has got an entry since."""
        error = self.last_error
        is_over = error is None or self.is_running or error.at_ms < (self.last_written_at_ms or 0)
        return None if is_over else error

    @property
    def is_running(self) -> bool:
        """Whether the driver is known to run: it may be one of another machine."""
        return self.driver is not None and self.driver.state == "running"

    def with_places(self, places: tuple[PlaceState, ...]) -> "Status":
        """Return this status with the sinks' places. One that is not this ledger's, or has lost its rows, is a conflict."""
        wrong = [place for place in places if place.state in {"foreign", "ahead", "lost"}]
        worst = next((place for place in wrong if not place.lets_start), wrong[0] if wrong else None)
        if worst is None:
            return replace(self, places=places)
        if not worst.lets_start:
            text = f"{worst.trouble} A start would be refused: `penstock doctor FILE` says what to do."
            return replace(self, places=places, health="conflict", text=text)
        return replace(
            self, places=places, health="conflict", text=self.text if self.health == "conflict" else f"{worst.trouble}"
        )


def status(
    *,
    pipeline: str,
    ledger: Ledger,
    checkpoint: CheckpointPosition | None,
    before: Entry | None = None,
    known: Status | None = None,
    error: LastError | None = None,
) -> Status:
    """Read the ledger's tail and compare it with the checkpoint. `before` was the tail before the checkpoint was read.

    `known`: an earlier status, which says who opened its generation. `error`: the error that was noted last.
    """
    tail = ledger.tail()
    owner, opened_at_ms = _opening(ledger, tail, known)
    driver = None if opened_at_ms is None else driver_of(owner, opened_at_ms=opened_at_ms)
    failed = ""
    if driver is not None and tail is not None and error is not None and error.ended(owner, after_ms=tail.written_at_ms):
        failed = "The query has failed. " if driver.state == "running" else ""
        driver = driver.without_query()
    health, text = _judge(tail, checkpoint, driver=None if driver is None else driver.state)
    if health == "conflict" and checkpoint is None and _begins_behind_others(ledger, tail):
        text = f"{text.partition(' A start ')[0]} {_LOST_AND_ADOPTED}"
    if health == "conflict" and _fits_between(before, tail, checkpoint):
        health, text = "ok", "Batches are decided in this moment: a driver runs."
    return Status(
        pipeline=pipeline,
        ledger=ledger.location,
        health=health,
        text=f"{failed}{text}",
        generation=None if tail is None else tail.generation,
        owner=owner,
        last_batch_id=_last_batch(tail),
        unsettled=unsettled_batch(tail),
        last_written_at_ms=None if tail is None else tail.written_at_ms,
        tail=None if tail is None else tail.position,
        totals={} if tail is None else tail.summary.totals,
        removed={} if tail is None else tail.summary.removed,
        ahead={} if tail is None else tail.summary.ahead,
        dropped={} if tail is None else tail.summary.dropped,
        checkpoint=checkpoint,
        driver=driver,
        opened_at_ms=opened_at_ms,
        last_error=error,
        batches=_batches(tail),
        replaying=None if tail is None else tail.summary.replaying_at,
    )


def _batches(tail: Entry | None) -> int | None:
    """Return how many batches were decided. Batches count from 0 without gaps, unless an operator adopted another checkpoint."""
    if tail is None:
        return 0
    return None if tail.summary.adopted_at is not None else tail.summary.next_batch_id or 0


def _last_batch(tail: Entry | None) -> BatchId | None:
    expected = None if tail is None else tail.summary.next_batch_id
    return BatchId(expected - 1) if expected else None


def unsettled_batch(tail: Entry | None) -> BatchId | None:
    """Return the newest decided batch, None if the ledger knows that every sink shows it."""
    if tail is None or tail.summary.decided_at in {None, tail.summary.published_at}:
        return None
    return _last_batch(tail)


def _opening(ledger: Ledger, tail: Entry | None, known: Status | None) -> tuple[str | None, int | None]:
    """Return who opened the newest generation, and when; None where that is not known."""
    if tail is not None and known is not None and known.generation == tail.generation:
        return known.owner, known.opened_at_ms  # else each look would read all batches of the generation
    opened = _newest_opened(ledger, tail)
    owner = opened.body.owner if opened is not None and isinstance(opened.body, Opened) else None
    return owner, None if opened is None else opened.written_at_ms


def _newest_opened(ledger: Ledger, tail: Entry | None) -> Entry | None:
    """Return the entry that opened the newest generation: the first of its kind from the tail back."""
    if tail is None:
        return None
    for entry in ledger.newest_first():
        if isinstance(entry.body, Opened):
            return entry
        if tail.position - entry.position > 1_000:  # status must not cost more the longer a run lasts
            break
    return None


_LOST_AND_ADOPTED = (
    "A start would be refused: put a copy of the checkpoint back. `penstock checkpoint rebuild FILE` makes it again only if no "
    "source reads files: the ledger does not know which ones the query read before it was adopted."
)


def _begins_behind_others(ledger: Ledger, tail: Entry | None) -> bool:
    """Return whether the ledger begins behind batches that another program delivered."""
    adopted_at = None if tail is None else tail.summary.adopted_at
    entry = None if adopted_at is None else ledger.read(adopted_at)
    return entry is not None and isinstance(entry.body, Adopted) and entry.body.next_batch_id > 0 and not entry.body.gaps


def _judge(tail: Entry | None, checkpoint: CheckpointPosition | None, *, driver: str | None) -> tuple[str, str]:
    expected = None if tail is None else tail.summary.next_batch_id
    if tail is None or expected is None or tail.summary.query_id is None:
        is_adopted = tail is not None and tail.summary.adopted_at is not None
        upcoming = 0 if checkpoint is None else checkpoint.next_batch_id
        if upcoming > 0 and (tail is None or driver == "stopped"):  # a driver may have committed its first batch since
            since = "A new checkpoint was adopted" if is_adopted else "The ledger is empty"
            return "conflict", (
                f"{since}, but Spark's checkpoint goes on with batch {upcoming}. A start would be refused: "
                "read what `penstock adopt FILE` says."
            )
        return "new", f"Nothing was delivered {'since a new checkpoint was adopted' if is_adopted else 'yet'}."
    if tail.summary.rewinding_at is not None:
        return "conflict", (
            f"The pipeline is being rewound to batch {expected - 1}, and that is not finished. A start would be refused: "
            f"the command that began it finishes it, `penstock rewind FILE --to-batch {expected - 1} --yes` or "
            "`penstock savepoint restore FILE NAME --yes`."
        )
    if checkpoint is None or checkpoint.query_id is None:
        lost = checkpoint is None
        what = "there is no checkpoint" if lost else "the checkpoint has lost its metadata file"
        way = "`penstock checkpoint rebuild FILE`" if lost else "`penstock checkpoint repair FILE`"
        return "conflict", (
            f"The ledger expects batch {expected}, but {what}. A start would be refused: {way} makes it again from the ledger."
        )
    if checkpoint.query_id != tail.summary.query_id:
        return "conflict", (
            f"The ledger continues query {tail.summary.query_id}, but the checkpoint is of query {checkpoint.query_id}. "
            "A start would be refused."
        )
    return _judge_position(expected, checkpoint, driver=driver)


def _fits_between(before: Entry | None, tail: Entry | None, checkpoint: CheckpointPosition | None) -> bool:
    """Return whether ledger and checkpoint differ only because a running driver moved both between the two reads."""
    if before is None or tail is None or checkpoint is None or before.position == tail.position:
        return False
    first, last = before.summary.next_batch_id, tail.summary.next_batch_id
    same_query = before.summary.query_id == tail.summary.query_id == checkpoint.query_id
    return same_query and first is not None and last is not None and first - 1 <= checkpoint.next_batch_id <= last


def _judge_position(expected: BatchId, checkpoint: CheckpointPosition, *, driver: str | None) -> tuple[str, str]:
    upcoming = checkpoint.next_batch_id
    if upcoming == expected:
        return "ok", f"Everything up to batch {expected - 1} is decided; {_what_follows(expected, checkpoint, driver=driver)}."
    if upcoming == expected - 1 and checkpoint.is_replay:
        return _judge_uncommitted(upcoming, driver=driver)
    if upcoming > expected:
        return (
            "conflict",
            f"Spark would go on with batch {upcoming}, but the ledger expects {expected}. A start would be refused.",
        )
    return "conflict", (
        f"The checkpoint would go on with batch {upcoming}, older than the ledger's {expected}: it looks like an old copy. "
        "Batches with the same offsets are recognised; others are refused."
    )


def _what_follows(batch_id: BatchId, checkpoint: CheckpointPosition, *, driver: str | None) -> str:
    if driver == "running":
        return f"batch {batch_id} is being staged" if checkpoint.is_replay else f"batch {batch_id} comes next"
    return f"the next start runs batch {batch_id}{' (planned before, not delivered yet)' if checkpoint.is_replay else ''}"


def _judge_uncommitted(batch_id: BatchId, *, driver: str | None) -> tuple[str, str]:
    """Judge a batch that is decided, and not in Spark's commit log: what every batch is until its sinks have returned."""
    if driver == "running":
        return "ok", f"Batch {batch_id} is decided, and the driver is publishing it; Spark commits it then."
    if driver == "stopped":
        return "replay", f"Spark will run batch {batch_id} again; it is decided already and will not be delivered twice."
    return "ok", (
        f"Batch {batch_id} is decided, and Spark has not committed it yet: a running driver does so next. If none runs, Spark "
        "runs the batch again at the next start, and nothing is delivered twice."
    )
