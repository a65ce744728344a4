"""What a ledger and a sink must do. Nothing to inherit: any object with these methods will do.

Who calls what:

- **Task side** (a Python worker of Spark, or the driver itself for small batches): `Stager.open` once per attempt, then
  `StageWriter.write` per Arrow batch, then `finish` or `abandon`. A stager is pickled and travels to the tasks.
- **Driver side**, always from one coordinator: `Sink.prepare` once per generation, `Sink.publish` for every decision and again
  for the newest one at every start, `Sink.sweep` after that. `check` and `verify` are called by the commands of those names.
- The **ledger** is called by the coordinator only; commands that show it use `tail`, `read` and `newest_first`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
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
from penstock.core.open_transaction import OpenTransaction

if TYPE_CHECKING:
    import pyarrow as pa

Within = Callable[[object], None]

SCHEMA_KEY = b"penstock.schema"
"""Metadata key of the Arrow schema that `Stager.open` is given: Spark's JSON of the rows, where the caller has it."""


class Ledger(Protocol):
    """One append-only log per pipeline with one conditional operation.

    The cost of `tail`, `read` and `append` does not depend on how many entries there are. Positions start at 1 and are dense
    from the oldest retained one to the tail.
    """

    @property
    def location(self) -> str:
        """Where it is, for people: no secrets in it."""
        ...

    def tail(self) -> Entry | None:
        """The newest entry, None if nothing was ever appended."""
        ...

    def read(self, position: Position) -> Entry | None:
        """The entry at `position`, None if it was never written or is no longer retained."""
        ...

    def append(self, entry: Entry, *, within: Within | None = None) -> None:
        """Put `entry` at `entry.position` unless that position is, or ever was, occupied. Durable on return.

        `within` is called with the open transaction just before it commits, and only by a ledger whose `home` is not None.
        Raises PositionTaken, Retryable (nothing was written), OutcomeUnknown (the caller reads the position and compares nonces).
        Never retries by itself.
        """
        ...

    @property
    def home(self) -> str | None:
        """The database whose transaction `append` is, if sinks may publish in it; equal to `home` of such a sink."""
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
        """Make what was taken durable where it is, still invisible, and say what it is. Nothing was taken: an empty list."""
        ...

    def abandon(self) -> None:
        """Close handles. Leaves what was written to the sweep: who knows how far the attempt got."""
        ...


class Stager(Protocol):
    """A picklable recipe for stage writers: settings only, no handles, no clients."""

    def open(self, attempt: Attempt, schema: "pa.Schema") -> StageWriter:
        """A writer for the rows of `attempt`. Called once per attempt, possibly many attempts in one process at once."""
        ...


class SinkDecisions(Protocol):
    """What the ledger decided for one sink. It is asked, not given: a driver decides and publishes while `Sink.verify` looks."""

    @property
    def published_at(self) -> Position:
        """Every decision up to here was published when the verification began: less is loss. 0 if there was none."""
        ...

    def totals(self, position: Position) -> Mapping[AccountName, Totals]:
        """All that was ever decided for the sink up to `position`, by account. After the ledger's end nothing is added."""
        ...

    def publications(self, position: Position | None = None) -> Iterator[Publication]:
        """The retained publications up to `position` (None: up to the ledger's end as it is now), newest first."""
        ...


class Sink(Protocol):
    """One place that a pipeline delivers to."""

    @property
    def name(self) -> SinkName:
        """The key under `sinks:` in the pipeline file."""
        ...

    @property
    def kind(self) -> SinkKind:
        """How it publishes exactly once."""
        ...

    @property
    def exactly_once(self) -> bool:
        """Whether it can; False for sinks meant for people's eyes, such as console."""
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
        """What it does at `stage` and at `publish`, and which path it takes, for `penstock explain`."""
        ...

    def check(self) -> Sequence[Finding]:
        """Look whether the target can be reached and written, without changing it for good. For `penstock check`."""
        ...

    def prepare(self, *, pipeline: PipelineName, schema: str | None) -> None:
        """Get the target ready: create what `create: true` allows, prove what the guarantee needs. Once per generation.

        `schema` is Spark's JSON of the rows, None where only recovery is to follow.
        Raises Refused where the target cannot give what the sink promises, Failed or Retryable where it cannot be had now.
        """
        ...

    def stager(self) -> Stager:
        """The recipe to ship to the tasks of the next batch."""
        ...

    def publish(self, publication: Publication) -> Published:
        """Make exactly this visible, durably, however often it is called and by however many drivers at a time.

        Rolls forward only. A target that shows it already, or showed it and was changed by maintenance since, is left alone and
        answers `already`. Raises Retryable or OutcomeUnknown (call it again), StagedDataLost, ContentConflict.
        """
        ...

    def sweep(self, cut: SweepCut, *, dry_run: bool) -> Sequence[str]:
        """Collect staging that is dead by `cut` and name what was (or would be) collected. Never called in an error path."""
        ...

    def verify(self, decisions: SinkDecisions) -> SinkReport:
        """Compare the target's content with what was decided, reading every row, without Spark, beside a running driver.

        The content is compared as of one position, which the report names: that of the place's own marker, but never before
        `decisions.published_at`. What is newer is neither loss nor foreign. Raises Retryable where the target changed too much
        under the look to tell.
        """
        ...

    def close(self) -> None:
        """Release files and connections."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnRows:
    """Rows that a sink takes instead of the pipeline's: an SQL expression over these for each column, and Spark's JSON of all.

    Spark computes them in the same pass; the digest of what is staged is that of these rows.
    """

    columns: Mapping[str, str]
    schema: str


@runtime_checkable
class ProjectsRows(Protocol):
    """A sink that may take rows of its own, made of the pipeline's."""

    def own_rows(self, schema: str) -> OwnRows | None:
        """What it takes of rows of Spark's `schema`, None for these as they are. Raises Usage for rows that lack something."""
        ...


@runtime_checkable
class PublishesInLedger(Protocol):
    """A transactional sink that can commit inside the ledger's own transaction where both live in one database."""

    @property
    def home(self) -> str | None:
        """Names the database; the coordinator compares it with `Ledger.home`."""
        ...

    def ledger_transaction(self, publication: Publication) -> AbstractContextManager[None]:
        """Around the append in which `publish_within` may be called, again where the append is repeated.

        Entered before the ledger's transaction begins: fetch here what `publish_within` reads. Left by an exception, nothing is
        known; left without one, the ledger has committed.
        """
        ...

    def publish_within(self, transaction: object, publication: Publication) -> Published:
        """As `publish`, on the ledger's open transaction; must not COMMIT or ROLLBACK."""
        ...


@runtime_checkable
class HashesRows(Protocol):
    """A sink that computes hashes of rows itself, to compare its content with the ledger's digests."""

    def use_row_digest(self, row_digest: RowDigest) -> None:
        """Take the kind of hash that the pipeline's ledger has. Called before `prepare`, `publish` and `verify`."""
        ...


@runtime_checkable
class ClaimsPlaces(Protocol):
    """A sink whose places are claimed for one ledger before anything is staged for them: another one does not sweep it then."""

    def claim(self, ledger_id: LedgerId) -> None:
        """Note in every place that it belongs to `ledger_id`, durably, unless that is there already. Called once per generation,
        after `prepare`, before its first batch is staged; never by a run that has nothing to deliver.

        Of several ledgers that claim a place at the same moment one succeeds at most. Raises LedgerMismatch for a place of
        another one.
        """
        ...


@runtime_checkable
class HasMarker(Protocol):
    """A sink whose places hold a marker, which says apart from the ledger what was published there, and by which ledger."""

    def high_water_mark(self, account: AccountName, *, pipeline: PipelineName) -> HighWaterMark | None:
        """What the marker of `account` says, None if there is no such marker. Changes nothing; called before `prepare`, or after
        it, once per account and start.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """An entry of the ledger for which a sink stages: no other ledger has one of this nonce at this position.

    `place` and `name` are where it was found, for people. `ledger_id` is None where an older Penstock signed.
    """

    place: str
    name: str
    generation: Generation
    position: Position
    nonce: Nonce
    ledger_id: LedgerId | None = None


@runtime_checkable
class SignsStaging(Protocol):
    """A sink whose staging says for which ledger it is: what another ledger staged looks dead to this one's sweep."""

    def signatures(self, *, pipeline: PipelineName) -> Sequence[Signature]:
        """What is there; none where nothing was ever swept. Changes nothing; called before `prepare`, which the caller does not
        call where one of them is another ledger's.
        """
        ...

    def sign(self, entry: Entry) -> None:
        """Sign with `entry` instead of what `signatures` gave. Raises Retryable, Failed. Called after `prepare`."""
        ...


class TaskCheck(Protocol):
    """A look at a sink's place from where a task runs. Picklable: it arrives also where no client library is."""

    def findings(self) -> Sequence[Finding]:
        """As `Sink.check`; leaves nothing behind and raises nothing that is the place's fault."""
        ...


@runtime_checkable
class ChecksFromTasks(Protocol):
    """A sink whose places can be looked at from the executors: tasks of the staging pass write there themselves."""

    def task_checks(self) -> AbstractContextManager[Sequence[TaskCheck]]:
        """Looks that tasks may take until the context ends; those that the driver cannot take itself are left out."""
        ...


@runtime_checkable
class ReportsStaging(Protocol):
    """A sink that tells what waits in it, and what could happen to that. Only looks."""

    def waiting(self, account: AccountName, *, pipeline: PipelineName) -> Iterator[Waiting]:
        """All that is staged for an account, as far as the target can list it; what `sweep` takes is among it."""
        ...

    def lifecycle(self) -> Sequence[Finding]:
        """What the target deletes by itself."""
        ...


@runtime_checkable
class ListsOpenTransactions(Protocol):
    """A place whose readers wait for transactions that somebody left open."""

    def open_transactions(self) -> Sequence[OpenTransaction]:
        """All on its topics, whoever began them, the oldest first. Only looks. Raises Failed, Usage."""
        ...

    def end_transaction(self, one: OpenTransaction) -> None:
        """Abort it: readers pass over its records, and its producer, should it live, is fenced. Raises Failed, Usage."""
        ...


@runtime_checkable
class ChecksSchema(Protocol):
    """A sink that can tell before the start whether it will take such rows."""

    def require_schema_accepted(self, *, pipeline: PipelineName, schema: str) -> None:
        """Raise the Usage or Refused that `prepare` would raise for rows of Spark's `schema`. Changes nothing."""
        ...


@runtime_checkable
class CountsRequests(Protocol):
    """A sink, a stager or a ledger that counts what it asks of places that bill each request."""

    def requests_sent(self) -> Mapping[str, int]:
        """For each such place how many requests this process has sent there, repetitions included; empty if there is none.

        It only grows. Whatever else in this process asks the same place is counted too.
        """
        ...


@runtime_checkable
class EstimatesRequests(Protocol):
    """A sink or a ledger that can tell before the start about how many requests a batch will take."""

    def estimated_requests(self) -> Mapping[str, RequestEstimate]:
        """For each place that bills requests; empty if there is none."""
        ...


def requesting(parts: Iterable[object]) -> tuple[CountsRequests, ...]:
    """Those that count: to be asked once, since telling takes longer than counting."""
    return tuple(part for part in parts if isinstance(part, CountsRequests))


def requests_so_far(parts: Iterable[CountsRequests]) -> int | None:
    """How many requests this process has sent to the places of `parts`, each place once; None if none of them bills requests."""
    sent: dict[str, int] = {}
    for part in parts:
        sent.update(part.requests_sent())
    return sum(sent.values()) if sent else None


def requests_since(before: int | None, parts: Iterable[CountsRequests]) -> int | None:
    """How many since `requests_so_far` of the same `parts` gave `before`."""
    return None if before is None else (requests_so_far(parts) or 0) - before
