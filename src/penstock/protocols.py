"""The protocols of a ledger and of a sink. There is nothing to inherit: any object with these methods will do.

Who calls what:

- **Task side** (a Python worker of Spark, or the driver itself for small batches): `Stager.open` once per attempt, then
  `StageWriter.write` per Arrow batch, then `finish` or `abandon`. A stager is pickled and travels to the tasks.
- **Driver side**, always from one coordinator: `Sink.prepare` once per generation, `Sink.publish` for every decision and again
  for the newest one at every start, `Sink.sweep` after that. `check` and `verify` are called by the commands of those names.
- The **ledger** is called by the coordinator only; commands that show it use `tail`, `read` and `newest_first`.
"""

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from penstock.core.high_water_mark import HighWaterMark
from penstock.core.model import (
    AccountName,
    Attempt,
    Entry,
    Finding,
    Generation,
    LedgerId,
    Nonce,
    PipelineName,
    Position,
    Publication,
    Published,
    Removal,
    RequestEstimate,
    RowDigest,
    SinkKind,
    SinkName,
    SinkReport,
    Staged,
    SweepCut,
    Totals,
    Waiting,
)
from penstock.core.topics import OpenTransaction

if TYPE_CHECKING:
    import pyarrow as pa

InTransaction = Callable[[object], None]
"""What a ledger calls with its open transaction, just before it commits an append."""

SCHEMA_KEY = b"penstock.schema"
"""Metadata key of the Arrow schema that `Stager.open` is given: Spark's JSON of the rows, where the caller has it."""


class Ledger(Protocol):
    """One append-only log per pipeline with one conditional operation.

    The cost of `tail`, `read` and `append` does not depend on how many entries there are. Positions start at 1 and are dense
    from the oldest retained one to the tail.
    """

    @property
    def location(self) -> str:
        """Where the ledger is, for people, without secrets."""
        ...

    def tail(self) -> Entry | None:
        """The newest entry, None if nothing was ever appended."""
        ...

    def read(self, position: Position) -> Entry | None:
        """The entry at `position`, None if it was never written or is no longer retained."""
        ...

    def append(self, entry: Entry, *, within: InTransaction | None = None) -> None:
        """Put `entry` at `entry.position` unless that position is, or ever was, occupied. Durable on return.

        `within` is called only by a ledger whose `home` is not None.
        Raises PositionTaken, Retryable (nothing was written), OutcomeUnknown (the caller reads the position and compares nonces).
        Never retries by itself.
        """
        ...

    @property
    def home(self) -> str | None:
        """The database in which `append` is a transaction that sinks of an equal `home` may publish in; None if they may not."""
        ...

    def newest_first(self) -> Iterator[Entry]:
        """Retained entries from the tail backwards; lazily, so that the caller may stop."""
        ...

    def prove(self) -> None:
        """Prove that put-if-absent holds here, with racing writers. Raises StoreIgnoresConditions."""
        ...

    def prune(self, *, below: Position) -> None:
        """Forget entries before `below`. An append at a forgotten position still answers PositionTaken."""
        ...

    def close(self) -> None:
        """Release files and connections."""
        ...


class StageWriter(Protocol):
    """Stages the rows of one attempt for one sink. Used by one thread."""

    def write(
        self,
        rows: "pa.RecordBatch",
        *,
        hashes: "pa.UInt64Array",
        accounts: "pa.StringArray | None",
    ) -> None:
        """Take `rows`; `hashes` holds each row's 64-bit hash, `accounts` each row's routed account (None: the sink has no route).

        Raises StageFailed for rows that cannot be taken: no such account, a value that cannot be written.
        """
        ...

    def finish(self) -> Sequence[Staged]:
        """Make the rows durable, still invisible, and return the pieces that hold them; an empty list if there were no rows."""
        ...

    def abandon(self) -> None:
        """Close handles after a failure. What was written is left to the sweep."""
        ...


class Stager(Protocol):
    """A picklable recipe for stage writers: settings only, no handles, no clients."""

    def open(self, attempt: Attempt, schema: "pa.Schema") -> StageWriter:
        """A writer for the rows of `attempt`. Called once per attempt, possibly many attempts in one process at once."""
        ...


class SinkDecisions(Protocol):
    """What the ledger decided for one sink, read on demand: a driver may decide and publish while `Sink.verify` reads."""

    @property
    def published_at(self) -> Position:
        """All decisions up to this position were published when the verification began; 0 if there was none."""
        ...

    def totals(self, position: Position) -> Mapping[AccountName, Totals]:
        """Return rows and digest of all decisions for the sink up to `position`, by account, less what was removed on purpose."""
        ...

    def publications(self, position: Position | None = None) -> Iterator[Publication]:
        """Yield the retained publications up to `position` (None: up to the ledger's tail as it is now), newest first."""
        ...

    def removals(self) -> Iterator[Removal]:
        """Yield what operators accepted as removed on purpose, newest first, as far as its entries are retained."""
        ...


class Sink(Protocol):
    """One place that a pipeline delivers to."""

    @property
    def name(self) -> SinkName:
        """The key under `sinks:` in the pipeline file."""
        ...

    @property
    def kind(self) -> SinkKind:
        """The way in which it publishes exactly once."""
        ...

    @property
    def exactly_once(self) -> bool:
        """Whether it delivers exactly once; False for sinks that only show rows, such as console."""
        ...

    @property
    def route_sql(self) -> str | None:
        """A Spark SQL expression over the rows that yields the account's name, None if there is nothing to route."""
        ...

    @property
    def accounts(self) -> Sequence[AccountName]:
        """Every account; `[ONLY_ACCOUNT]` for a sink with just one place."""
        ...

    def describe(self) -> Mapping[str, str]:
        """Say what it does at `stage` and at `publish`, for `penstock explain`."""
        ...

    def check(self) -> Sequence[Finding]:
        """Report whether the target can be reached and written, for `penstock check`. Leaves nothing behind."""
        ...

    def prepare(self, *, pipeline: PipelineName, schema: str | None) -> None:
        """Create what `create: true` allows, and prove what the guarantee needs. Called once per generation.

        `schema` is Spark's JSON of the rows, None where only recovery is to follow. Raises Refused where the target cannot give
        what the sink promises, Failed or Retryable where it cannot be reached.
        """
        ...

    def stager(self) -> Stager:
        """Return the recipe that is shipped to the tasks of the next batch."""
        ...

    def publish(self, publication: Publication) -> Published:
        """Make exactly this visible, durably, however often it is called and by however many drivers at a time.

        Rolls forward only. A target that shows it already, or showed it and was changed by maintenance since, is left alone and
        answers `already`. Raises Retryable, OutcomeUnknown (call it again), NotPublishedYet, StagedDataLost, ContentConflict.
        """
        ...

    def sweep(self, cut: SweepCut, *, dry_run: bool) -> Sequence[str]:
        """Collect staging that is dead by `cut`, and return the names of what was (or would be) collected.

        Called after a start, after a query that ended well, by `penstock sweep` and by `doctor`; never while an error is handled.
        """
        ...

    def verify(self, decisions: SinkDecisions) -> SinkReport:
        """Compare the target's content with what was decided, reading every row, without Spark, beside a running driver.

        The content is compared as of one position, which the report names: that of the place's own marker, but never before
        `decisions.published_at`. What is newer is neither loss nor foreign. Raises Retryable where the target changed too much
        while it was read.
        """
        ...

    def close(self) -> None:
        """Release files and connections."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnRows:
    """Rows that a sink takes instead of the pipeline's: an SQL expression over the pipeline's rows for each of its columns.

    `schema` is Spark's JSON of them. Spark computes them in the same pass, and what is staged has the digest of these rows.
    """

    columns: Mapping[str, str]
    schema: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What a sink takes of rows of a known schema, by its settings.

    `where`: an SQL predicate, None for all rows. `own`: None for all columns as they are. `schema`: of what is taken, as JSON.
    `deletes`: an SQL predicate over the pipeline's rows, true for those that delete the row of their key; the sink's stage
    writers are then given rows with the column of `core.deletes`. None where no row deletes.
    """

    where: str | None
    own: OwnRows | None
    schema: str
    deletes: str | None = None


ALL_ROWS: Mapping[SinkName, Taken] = MappingProxyType({})
"""What each sink takes, where all sinks take all rows as they are: no sink has an entry."""


@runtime_checkable
class ProjectsRows(Protocol):
    """A sink that may take other rows than the pipeline's, computed from these."""

    def own_rows(self, schema: str) -> OwnRows | None:
        """Return the rows it takes instead of those of Spark's `schema`, None for the same. Raises Usage for missing columns."""
        ...


@runtime_checkable
class PublishesInLedger(Protocol):
    """A transactional sink that publishes in the ledger's own transaction where both are in one database."""

    @property
    def home(self) -> str | None:
        """The name of the database, compared with `Ledger.home`; None if there is none."""
        ...

    def ledger_transaction(self, publication: Publication) -> AbstractContextManager[None]:
        """Return a context for the append in which `publish_within` is called, once for each try of the append.

        The coordinator enters it before the ledger's transaction begins, so fetch here what `publish_within` reads. If it is
        left without an exception, the ledger has committed; after an exception, the outcome is unknown.
        """
        ...

    def publish_within(self, transaction: object, publication: Publication) -> Published:
        """Publish on the ledger's open transaction; must not COMMIT or ROLLBACK."""
        ...


@runtime_checkable
class HashesRows(Protocol):
    """A sink that hashes rows, to compare its content with the ledger's digests."""

    def use_row_digest(self, row_digest: RowDigest) -> None:
        """Use the kind of hash that the pipeline's ledger has. Called before `prepare`, `publish` and `verify`."""
        ...


@runtime_checkable
class HasMarker(Protocol):
    """A sink whose places hold a marker: what was published there and by which ledger, apart from the ledger."""

    def high_water_mark(self, account: AccountName, *, pipeline: PipelineName) -> HighWaterMark | None:
        """Read the marker of `account`; None if there is none. Called by a start, before or after `prepare`, and by commands."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """The entry of the ledger for which a sink stages. No other ledger has an entry of this nonce at this position.

    `place` and `name` are where it was found, for people. `ledger_id` is None where an older Penstock signed.
    """

    place: str
    name: str
    generation: Generation
    position: Position
    nonce: Nonce
    ledger_id: LedgerId | None = None


class TaskCheck(Protocol):
    """A check of a sink's place from where a task runs. Picklable, also where the client library is not installed."""

    def findings(self) -> Sequence[Finding]:
        """Report as `Sink.check` does. Leaves nothing behind; errors of the place are findings, not exceptions."""
        ...


@runtime_checkable
class HasStaging(Protocol):
    """A sink with places of its own into which tasks write, and where staged rows wait to be published or swept."""

    def task_checks(self) -> AbstractContextManager[Sequence[TaskCheck]]:
        """Return the checks that tasks may run until the context ends, without those that already fail in the driver."""
        ...

    def signatures(self, *, pipeline: PipelineName) -> Sequence[Signature]:
        """Read for which ledgers the places hold staging; empty if `sign` was never called. Changes nothing.

        Called before `prepare`. If one of them is another ledger's, the start is refused and `prepare` is not called:
        otherwise a sweep would collect what that ledger staged.
        """
        ...

    def sign(self, entry: Entry) -> None:
        """Replace the signatures by one for `entry`. Called after `prepare` and the sweep. Raises Retryable, Failed."""
        ...

    def claim(self, ledger_id: LedgerId) -> None:
        """Note durably in every place that it belongs to `ledger_id`, unless the place says so already.

        Called once per generation, after `prepare`, before its first batch is staged; never by a run that has nothing to deliver.
        Of several ledgers that claim a place at the same moment, at most one succeeds. Raises LedgerMismatch for a place of
        another ledger.
        """
        ...

    def waiting(self, account: AccountName, *, pipeline: PipelineName) -> Iterator[Waiting]:
        """Yield every staged piece of an account that the target can list, those included that `sweep` would collect."""
        ...

    def lifecycle(self) -> Sequence[Finding]:
        """Report the target's own rules that delete data, such as those of a bucket's lifecycle. Changes nothing."""
        ...


@runtime_checkable
class ListsOpenTransactions(Protocol):
    """A sink or source whose readers wait for transactions that somebody left open."""

    def open_transactions(self) -> Sequence[OpenTransaction]:
        """List the open transactions on its topics, whoever began them, the oldest first. Raises Failed, Usage."""
        ...

    def end_transaction(self, one: OpenTransaction) -> None:
        """Abort the transaction: readers pass over its records, and its producer, if alive, is fenced. Raises Failed, Usage."""
        ...


@runtime_checkable
class ChecksSchema(Protocol):
    """A sink that can say before the start whether it accepts rows of a schema."""

    def require_schema_accepted(self, *, pipeline: PipelineName, schema: str) -> None:
        """Raise the Usage or Refused that `prepare` would raise for rows of Spark's `schema`. Changes nothing."""
        ...


@runtime_checkable
class CountsRequests(Protocol):
    """A sink, a stager or a ledger that counts its requests to places that bill them."""

    def requests_sent(self) -> Mapping[str, int]:
        """Return how many requests this process has sent to each such place, repetitions included; empty if there is none.

        The numbers only grow, and count whatever else in this process asks the same place.
        """
        ...


@runtime_checkable
class EstimatesRequests(Protocol):
    """A sink or a ledger that estimates before the start how many requests a batch will take."""

    def estimated_requests(self) -> Mapping[str, RequestEstimate]:
        """Return an estimate for each place that bills requests; empty if there is none."""
        ...


def requesting(parts: Iterable[object]) -> tuple[CountsRequests, ...]:
    """Return those of `parts` that count requests. Call it once and keep the result: the check takes longer than the counting."""
    return tuple(part for part in parts if isinstance(part, CountsRequests))


def requests_so_far(parts: Iterable[CountsRequests]) -> int | None:
    """Return how many requests this process has sent to the places of `parts`, each place once; None if no place bills them."""
    sent: dict[str, int] = {}
    for part in parts:
        sent.update(part.requests_sent())
    return sum(sent.values()) if sent else None


def requests_since(before: int | None, parts: Iterable[CountsRequests]) -> int | None:
    """Return how many requests were sent since `requests_so_far` of the same `parts` gave `before`."""
    return None if before is None else (requests_so_far(parts) or 0) - before


_JOINED = ("ChecksFromTasks", "ClaimsPlaces", "ReportsStaging", "SignsStaging")
"""Former protocols, whose methods `HasStaging` has now."""

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name not in _JOINED:
            raise AttributeError(f"module 'penstock.protocols' has no attribute {name!r}")
        warnings.warn(f"penstock.protocols.{name} is now a part of HasStaging", DeprecationWarning, stacklevel=2)
        return HasStaging
