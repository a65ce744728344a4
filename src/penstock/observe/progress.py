"""Progress of a run as values: one per batch, and one at the end, the summary. The keys of the summary are a contract.

`rows_out` are the rows that the transform gave; `rows_in` is its older name, which programs read. `rows_read` are the records
that the offsets of the sources say, None where a source does not count them, as one of files: Kafka counts what transactions and
compaction took, too. `dropped` counts the rows that rules of the sources dropped, by source and rule.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from penstock.core.dropped_rows import DroppedRows, sum_of, total
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
    rows_out: int = 0
    rows_read: int | None = None
    already: bool = False
    recovered: bool = False
    sinks: Mapping[SinkName, SinkProgress]
    stage_ms: int = 0
    decide_ms: int = 0
    publish_ms: int = 0
    path: str
    dropped: DroppedRows = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    @property
    def rows_in(self) -> int:
        """The older name of `rows_out`."""
        return self.rows_out

    @property
    def rows_per_s(self) -> float:
        """Rows per second of staging, decision and publication; 0 for a batch that was not run."""
        spent_ms = self.stage_ms + self.decide_ms + self.publish_ms
        return 0.0 if self.already or spent_ms == 0 else 1000.0 * self.rows_out / spent_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """The last object that `run --json` prints: the batches of one run, added up as the delivery reports them."""

    pipeline: str
    generation: int = 0
    batches: int = 0
    rows_out: int = 0
    rows_read: int | None = 0
    sinks: Mapping[SinkName, SinkProgress]
    last_batch_id: int | None = None
    recovered: bool = False
    dropped: DroppedRows = field(default_factory=dict)

    @property
    def rows_in(self) -> int:
        """The older name of `rows_out`."""
        return self.rows_out

    def plus(self, progress: BatchProgress) -> "RunSummary":
        """Return the summary with one batch more; one that was decided before counts only as already committed."""
        is_new = not progress.already and not progress.recovered
        shares = {sink: self.sinks.get(sink, SinkProgress()) + share for sink, share in progress.sinks.items()}
        return replace(
            self,
            batches=self.batches + is_new,
            rows_out=self.rows_out + (progress.rows_out if is_new else 0),
            rows_read=_added(self.rows_read, progress.rows_read) if is_new else self.rows_read,
            sinks={**self.sinks, **shares},
            last_batch_id=progress.batch_id,
            recovered=self.recovered or progress.recovered,
            dropped=sum_of(self.dropped, progress.dropped) if is_new else self.dropped,
        )


def _added(number: int | None, other: int | None) -> int | None:
    return None if number is None or other is None else number + other


def describe(progress: BatchProgress) -> str:
    """Return one line about a batch, for logs."""
    shares = ", ".join(f"{name}: {_share(share)}" for name, share in progress.sinks.items())
    if progress.already:
        return f"batch {progress.batch_id} was committed already; nothing written ({shares})"
    if progress.recovered:
        return f"batch {progress.batch_id}, which an earlier run decided, was published ({shares})"
    spent_s = (progress.stage_ms + progress.decide_ms + progress.publish_ms) / 1000
    if not progress.rows_out:  # nothing is published, which is not "already committed"
        shares = ", ".join(f"{name}: 0 rows" for name in progress.sinks)
    read = "" if progress.rows_read is None else f"{progress.rows_read:,} read, "
    number = total(progress.dropped)
    dropped = f"{number:,} dropped, " if number else ""
    return f"batch {progress.batch_id} delivered in {spent_s:.1f} s: {read}{dropped}{progress.rows_out:,} rows ({shares})"


def _share(share: SinkProgress) -> str:
    if share.already_committed and not share.rows:
        return "already committed"
    return f"{share.rows:,} rows{f' in {share.files:,} files' if share.files else ''}"
