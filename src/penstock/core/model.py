"""The nouns of the protocol: frozen values without side effects.

A **batch** is one Spark micro-batch, identified by query id and offsets, never by its number alone. A task **attempt** stages
rows for it and reports them in **staged** messages. A **decision** fixes which staged messages are the batch. An **entry** puts a
decision (or the opening of a generation, or an operator's act) at one **position** of the pipeline's ledger. A **generation** is
one opening of the pipeline; a newer one fences all older ones.
"""

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NewType, TypeAlias

from penstock.core.backfill import Backfilled, BackfillEnded, BackfillOpened, BackfillProgress
from penstock.core.dropped_rows import DroppedRows
from penstock.core.replay import Replayed
from penstock.core.request_estimate import RequestEstimate as RequestEstimate  # noqa: PLC0414 - one of the names below
from penstock.core.sink_report import AccountReport as AccountReport  # noqa: PLC0414 - these four, too
from penstock.core.sink_report import MissingFiles as MissingFiles  # noqa: PLC0414
from penstock.core.sink_report import Problem as Problem  # noqa: PLC0414
from penstock.core.sink_report import SinkReport as SinkReport  # noqa: PLC0414
from penstock.core.topics import NO_EVIDENCE, Evidence, GapAccepted
from penstock.core.topics import SourceName as SourceName  # noqa: PLC0414 - one of the names below
from penstock.core.totals import DIGEST_MODULUS as DIGEST_MODULUS  # noqa: PLC0414 - these four, too
from penstock.core.totals import NEWEST_ROW_DIGEST as NEWEST_ROW_DIGEST  # noqa: PLC0414
from penstock.core.totals import RowDigest as RowDigest  # noqa: PLC0414
from penstock.core.totals import Totals as Totals  # noqa: PLC0414
from penstock.support.secret import scrub

PipelineName = NewType("PipelineName", str)
SinkName = NewType("SinkName", str)
AccountName = NewType("AccountName", str)
QueryId = NewType("QueryId", str)
BatchId = NewType("BatchId", int)
Generation = NewType("Generation", int)
LedgerId = NewType("LedgerId", str)
Position = NewType("Position", int)
Nonce = NewType("Nonce", str)

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

ONLY_ACCOUNT = AccountName("")
"""The account of a sink with a single place to write to."""


def new_nonce() -> Nonce:
    """Return 64 random bits in hexadecimal, which identify one try."""
    return Nonce(secrets.token_hex(8))


def new_ledger_id() -> LedgerId:
    """Return the identity of a new ledger: 128 random bits in hexadecimal."""
    return LedgerId(secrets.token_hex(16))


class Guarantee(str, Enum):
    """The delivery guarantee that a pipeline demands or gets."""

    EXACTLY_ONCE = "exactly_once"
    AT_LEAST_ONCE = "at_least_once"


class SinkKind(str, Enum):
    """How a sink makes a batch appear once (docs/PROTOCOL.md, section Sinks)."""

    STAGING = "staging"
    TRANSACTIONAL = "transactional"
    IDEMPOTENT = "idempotent"


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRange:
    """What one source contributes to a batch: everything after `start` up to and including `end`.

    Offsets are the JSON text that Spark logged, None where it logged none. `content` is a fingerprint of the range where offsets
    alone do not identify its data: a file source's offset is only an index into its own log of files.
    """

    source: SourceName
    start: str | None
    end: str | None
    content: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One micro-batch as Spark planned it. Two batches are the same only if all three fields are equal."""

    query_id: QueryId
    batch_id: BatchId
    offsets: tuple[OffsetRange, ...]


_TOKEN = re.compile(r"g(\d+)-b(\d+)-p(\d+)-t(\d+)-([0-9a-f]{16})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One run of one task of the staging pass. No two attempts share a `token`, so what they write never collides."""

    generation: Generation
    batch_id: BatchId
    partition: int
    task_attempt: int
    nonce: Nonce

    @property
    def token(self) -> str:
        """The attempt's name inside file names: letters, digits and hyphens only."""
        return f"g{self.generation}-b{self.batch_id}-p{self.partition}-t{self.task_attempt}-{self.nonce}"

    @staticmethod
    def find(text: str) -> "Attempt | None":
        """Return the attempt whose token occurs in `text` (a file name, say), or None."""
        found = _TOKEN.search(text)
        if found is None:
            return None
        generation, batch_id, partition, task_attempt = (int(group) for group in found.groups()[:4])
        return Attempt(
            generation=Generation(generation),
            batch_id=BatchId(batch_id),
            partition=partition,
            task_attempt=task_attempt,
            nonce=Nonce(found[5]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """One piece of a batch that a task attempt wrote, invisible until published.

    `name` is where the published piece lies inside its account (a relative path), or the spool piece's name for sinks that
    publish in a transaction. `ref` says how to publish it (a staging path, or an upload id with its parts); only the sink that
    wrote it reads it. `inline` holds the piece itself when it is small enough to travel inside the decision.
    """

    sink: SinkName
    account: AccountName
    name: str
    attempt: str
    totals: Totals
    ref: Mapping[str, Json] = field(default_factory=dict)
    inline: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The permanent definition of a batch: its identity and its staged pieces. `schema` is Spark's JSON of the rows.

    `schemas`: for each sink that takes a selection of the rows, the schema of what it takes. `evidence` comes from the sources;
    the protocol does not read it. `dropped` counts rows of the sources that reached neither the transform nor a sink, `rows_read`
    those that were read of each source with rules. Times and request counts are for people; the latter are None if unknown.
    """

    batch: Batch
    staged: tuple[Staged, ...]
    rows_in: int
    schema: str
    stage_ms: int = 0
    previous_publish_ms: int | None = None
    stage_requests: int | None = None
    previous_publish_requests: int | None = None
    evidence: Evidence = NO_EVIDENCE
    schemas: Mapping[SinkName, str] = field(default_factory=dict)
    dropped: DroppedRows = field(default_factory=dict)
    rows_read: Mapping[SourceName, int] = field(default_factory=dict)

    def schema_of(self, sink: SinkName) -> str:
        """Return the schema of the rows as one sink takes them."""
        return self.schemas.get(sink, self.schema)

    def of_sink(self, sink: SinkName) -> tuple[Staged, ...]:
        """Return the pieces of one sink, in the order in which they were decided."""
        return tuple(piece for piece in self.staged if piece.sink == sink)  # I5

    def totals_of(self, sink: SinkName) -> Totals:
        return sum((piece.totals for piece in self.of_sink(sink)), Totals())


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A driver opened the pipeline: the fence. `owner` names host, process and start, for people only."""

    owner: str
    checkpoint: str
    pipeline_digest: str
    sinks: tuple[SinkName, ...]
    versions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """A decision as an entry's body. Its conditional append makes the staged batch exist."""

    decision: Decision


@dataclass(frozen=True, slots=True, kw_only=True)
class Adopted:
    """An operator accepted another checkpoint: `query_id` continues the pipeline with batch `next_batch_id`.

    `query_id` is None for a checkpoint that does not exist yet: any query may start, with batch 0. `gaps` lists the records that
    the pipeline goes on without.
    """

    query_id: QueryId | None
    next_batch_id: BatchId
    reason: str
    operator: str
    gaps: tuple[GapAccepted, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """Files of one account that were removed on purpose, with their totals as decided.

    `decided`: ranges of positions, both ends included: every file that the account got there. `files`: single ones of other
    decisions, by name. `unchecked` counts files of forgotten decisions that were left: `totals` is then the difference to these.
    """

    sink: SinkName
    account: AccountName
    decided: tuple[tuple[Position, Position], ...]
    files: tuple[str, ...]
    totals: Totals
    unchecked: Totals = field(default_factory=Totals)


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovalAccepted:
    """An operator stated that files were removed on purpose. From here on `verify` reports them only if they are there again."""

    removals: tuple[Removal, ...]
    reason: str
    operator: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewound:
    """An operator took back every batch after `batch_id`, which was decided at position `to`. Sinks in `kept` keep them."""

    batch_id: BatchId
    to: Position
    kept: tuple[SinkName, ...]
    reason: str
    operator: str


Body: TypeAlias = Opened | Decided | Adopted | RemovalAccepted | Rewound | Backfilled | Replayed | BackfillOpened | BackfillEnded

SinkTotals: TypeAlias = Mapping[SinkName, Mapping[AccountName, Totals]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The whole ledger up to and including one entry, in constant size: recovery reads the tail and nothing else.

    `query_id` and `next_batch_id` say which batch may be decided next (None: nothing was decided or adopted yet). `decided_at` is
    the position of the newest decision, `adopted_at` of the newest `Adopted`. The writer of this entry knew that every decision
    up to `published_at` was published in every sink. `totals` count every decided row ever, by sink and account. `ledger_id` is
    the ledger's identity: of two ledgers of one pipeline name, at most one may move a sink's marker. The first entry of a ledger
    sets it; in an older Penstock's ledger (None) the next opening does. `row_digest` is the kind of every digest in the ledger.
    `removed` counts the rows in `totals` whose files were removed on purpose; `removed_at` is where the newest such act stands.
    `rewound_at` is the position of the newest `Rewound`, and `rewinding_at` the same until sinks and checkpoint are as it says.
    `ahead`: sinks that kept what a rewind took back, each with the newest batch that it has; they take no batch up to that one.
    `backfills` has the sinks that were given earlier batches. `dropped` counts every row that a decision dropped which stands.
    `replayed_at` is the position of the newest entry that gave sinks rows beside the query's batches: a `Replayed`, or a
    `Backfilled` with rows for the quarantine. `replaying_at` is the same until these rows are published everywhere.
    """

    ledger_id: LedgerId | None = None
    row_digest: RowDigest = RowDigest.XXHASH64
    query_id: QueryId | None = None
    next_batch_id: BatchId | None = None
    decided_at: Position | None = None
    published_at: Position | None = None
    adopted_at: Position | None = None
    totals: SinkTotals = field(default_factory=dict)
    removed: SinkTotals = field(default_factory=dict)
    removed_at: Position | None = None
    rewound_at: Position | None = None
    rewinding_at: Position | None = None
    ahead: Mapping[SinkName, BatchId] = field(default_factory=dict)
    backfills: Mapping[SinkName, BackfillProgress] = field(default_factory=dict)
    dropped: DroppedRows = field(default_factory=dict)
    replayed_at: Position | None = None
    replaying_at: Position | None = None

    @property
    def continued_from(self) -> Position | None:
        """The position of the newest decision, None if another checkpoint was adopted since."""
        return None if self.decided_at is None or (self.adopted_at or 0) > self.decided_at else self.decided_at


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One entry of the ledger. After a lost answer, `nonce` identifies the writer's own entry. `written_at_ms` is for people."""

    pipeline: PipelineName
    position: Position
    generation: Generation
    nonce: Nonce
    written_at_ms: int
    body: Body
    summary: Summary


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """One sink's share of a decision, as the coordinator hands it to the sink; identical at every repetition.

    `position` grows with every decision of a pipeline, whatever its query id; markers store it. `ledger_id` is the ledger that
    decided it: the marker of another ledger refuses the publication. It is None only where publications are compared whose ledger
    was opened by older Penstocks only. `previous` is the position of the ledger's previous decision that the sink may have a part
    of, 0 if there is none, None if unknown.
    """

    pipeline: PipelineName
    sink: SinkName
    position: Position
    generation: Generation
    batch: Batch
    staged: tuple[Staged, ...]
    schema: str
    ledger_id: LedgerId | None
    row_digest: RowDigest = RowDigest.XXHASH64
    previous: Position | None = None

    @property
    def is_inline(self) -> bool:
        """Whether all pieces travel in the decision, so that none lies in a spool."""
        return all(piece.inline is not None for piece in self.staged)

    def may_follow_marker_at(self, position: Position) -> bool:
        """Return whether this ledger can have moved a marker to `position`, which is below this publication's.

        The marker may lag behind, where batches had no rows for its place. But it never stands between two consecutive decisions:
        such a marker was moved by a copy of the ledger, which has the same identity.
        """
        return self.previous is None or position <= self.previous

    @property
    def totals(self) -> Totals:
        return sum((piece.totals for piece in self.staged), Totals())


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """The result of publishing. `already`: the target showed the batch before, so nothing was written."""

    totals: Totals
    already: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepCut:
    """Which staging may be collected: that of attempts that can never be decided any more.

    An attempt is dead if its token is not in `kept` (the attempts that the newest decision names), and its generation is older
    than `generation`, or equal and its batch not newer than `batch_id` (the last decided one). No clock is read. Generations and
    batches are counted by ledger `ledger_id`; staging of another ledger is left alone.
    """

    pipeline: PipelineName
    ledger_id: LedgerId | None
    generation: Generation
    batch_id: BatchId | None
    kept: frozenset[str]

    def is_dead(self, attempt: Attempt) -> bool:
        """Return whether nothing staged by `attempt` is or can become part of a decision."""
        if attempt.token in self.kept or attempt.generation > self.generation:
            return False
        if attempt.generation < self.generation:
            return True
        return self.batch_id is not None and attempt.batch_id <= self.batch_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """One staged piece in a target; `size_bytes` is None where the target does not report it.

    `attempt` is None for remains of a killed run that can never be decided.
    """

    name: str
    attempt: Attempt | None
    size_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One line of `penstock check`: the subject, whether it is fine, and the reason or remedy, without secrets.

    `warns`: the finding does not prevent a start, but will cause a failure one day. `account`: where it concerns one account of
    several of a sink.
    """

    subject: str
    ok: bool
    message: str
    warns: bool = False
    account: AccountName | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "message", scrub(self.message))
