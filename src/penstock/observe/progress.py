"""Progress of a run as values: one per batch, and one at the end, the summary. The keys of the summary are a contract."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from penstock.core.model import Published, SinkName


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkProgress:
    """One sink's share of a batch, or of a whole run, where `already_committed` counts batches."""

    rows: int = 0
    files: int = 0
    bytes: int = 0
    already_committed: int = 0

    def __add__(self, other: "SinkProgress") -> "SinkProgress":
        return SinkProgress(
            rows=self.rows + other.rows,
            files=self.files + other.files,
            bytes=self.bytes + other.bytes,
            already_committed=self.already_committed + other.already_committed,
        )


def sink_progress(published: Published) -> SinkProgress:
    """Return what one publication wrote: nothing if the target showed it already."""
    if published.already:
        return SinkProgress(already_committed=1)
    totals = published.totals
    return SinkProgress(rows=totals.rows, files=totals.files, bytes=totals.size_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchProgress:
    """One batch that was delivered, or recognised as delivered before (`already`), or published by the start (`recovered`).

    `path` is where its rows were staged: `driver` or `distributed`. It is `none` for `already`, `recovery` for `recovered`.
    """

    batch_id: int
    rows_in: int = 0
    already: bool = False
    recovered: bool = False
    sinks: Mapping[SinkName, SinkProgress]
    stage_ms: int = 0
    decide_ms: int = 0
    publish_ms: int = 0
    path: str
    warnings: tuple[str, ...] = ()

    @property
    def rows_per_s(self) -> float:
        """Rows through the protocol per second; 0 for a batch that was not run."""
        spent_ms = self.stage_ms + self.decide_ms + self.publish_ms
        return 0.0 if self.already or spent_ms == 0 else 1000.0 * self.rows_in / spent_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """The last object that `run --json` prints: the batches of one run, added up as the delivery reports them."""

    pipeline: str
    generation: int = 0
    batches: int = 0
    rows_in: int = 0
    sinks: Mapping[SinkName, SinkProgress]
    last_batch_id: int | None = None
    recovered: bool = False

    def plus(self, progress: BatchProgress) -> "RunSummary":
        """Return the summary with one batch more; one that was decided before counts only as already committed."""
        is_new = not progress.already and not progress.recovered
        shares = {sink: self.sinks.get(sink, SinkProgress()) + share for sink, share in progress.sinks.items()}
        return replace(
            self,
            batches=self.batches + is_new,
            rows_in=self.rows_in + (progress.rows_in if is_new else 0),
            sinks={**self.sinks, **shares},
            last_batch_id=progress.batch_id,
            recovered=self.recovered or progress.recovered,
        )
