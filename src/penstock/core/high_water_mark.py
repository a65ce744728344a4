"""What a place says of itself, apart from the ledger: whose it is, and up to where everything was published there."""

from dataclasses import dataclass

from penstock.core.model import AccountName, BatchId, Generation, LedgerId, PipelineName, Position, QueryId, SinkName


@dataclass(frozen=True, slots=True, kw_only=True)
class HighWaterMark:
    """What the marker of a place says: every publication of ledger `ledger_id` up to `position` is shown there.

    `ledger_id` is None where an older Penstock wrote the marker. The rest is of the publication at `position`, None where nothing
    was published yet.
    """

    position: Position
    ledger_id: LedgerId | None
    generation: Generation | None
    query_id: QueryId | None
    batch_id: BatchId | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkedFile:
    """One file of a publication, as its manifest tells of it; `name` is relative to the account's root."""

    name: str
    rows: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """High-water mark of one account of a sink: every publication of ledger `ledger_id` up to `position` was shown there.

    It tells "published, and removed since by maintenance" from "lost": a publication at or below `position` is never written
    again. Positions are compared, nothing else; the rest tells readers of the publication. `files` is its manifest: all that it
    added to the account, None where an older Penstock wrote the mark.
    """

    pipeline: PipelineName
    sink: SinkName
    account: AccountName
    position: Position
    generation: Generation
    query_id: QueryId
    batch_id: BatchId
    files: tuple[MarkedFile, ...] | None = None
    ledger_id: LedgerId | None = None

    @property
    def high_water_mark(self) -> HighWaterMark:
        """What it says of itself to a start."""
        return HighWaterMark(
            position=self.position,
            ledger_id=self.ledger_id,
            generation=self.generation,
            query_id=self.query_id,
            batch_id=self.batch_id,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountOwner:
    """Whose an account is: one account of one sink of one pipeline, filled by one ledger, for ever."""

    pipeline: PipelineName
    sink: SinkName
    account: AccountName
    ledger_id: LedgerId
