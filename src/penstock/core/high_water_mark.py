"""Values that a place stores about itself, apart from the ledger: its owner, and the position up to which it shows everything."""

from dataclasses import dataclass

from penstock.core.model import AccountName, BatchId, Generation, LedgerId, PipelineName, Position, QueryId, SinkName


@dataclass(frozen=True, slots=True, kw_only=True)
class HighWaterMark:
    """What the marker of a place says: the place shows every publication of ledger `ledger_id` up to `position`.

    `ledger_id` is None where an older Penstock wrote the marker. The other fields describe the publication at `position`; they
    are None where nothing was published yet.
    """

    position: Position
    ledger_id: LedgerId | None
    generation: Generation | None
    query_id: QueryId | None
    batch_id: BatchId | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkedFile:
    """One file of a publication, as listed in its manifest. `name` is relative to the account's root."""

    name: str
    rows: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """High-water marker of one account: every publication of ledger `ledger_id` up to `position` was shown there.

    It distinguishes "published, then removed by maintenance" from "lost": a publication at or below `position` is never written
    again. Only positions are compared; the other fields describe the publication to readers. `files` is its manifest: all files
    that it added to the account, None where an older Penstock wrote the marker.
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
        """The fields that a start compares with the ledger."""
        return HighWaterMark(
            position=self.position,
            ledger_id=self.ledger_id,
            generation=self.generation,
            query_id=self.query_id,
            batch_id=self.batch_id,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountOwner:
    """The owner of an account: one sink of one pipeline, filled by one ledger, for ever."""

    pipeline: PipelineName
    sink: SinkName
    account: AccountName
    ledger_id: LedgerId
