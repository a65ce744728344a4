"""What the coordinator takes and returns: a staged batch, a delivered one, and what opening recovered."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.core.dropped_rows import DroppedRows
from penstock.core.model import Batch, Decision, Generation, Published, SinkName, SourceName, Staged, Summary
from penstock.core.topics import NO_EVIDENCE, Evidence


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedBatch:
    """What the staging pass of a batch returned.

    `schemas`, `dropped`, `rows_read`: as in `Decision`. `requests` counts what its tasks sent to stores, None if none is billed.
    """

    pieces: tuple[Staged, ...]
    rows_in: int
    schema: str
    stage_ms: int = 0
    requests: int | None = None
    evidence: Evidence = NO_EVIDENCE
    schemas: Mapping[SinkName, str] = field(default_factory=dict)
    dropped: DroppedRows = field(default_factory=dict)
    rows_read: Mapping[SourceName, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """A batch that every sink shows. `already`: it was decided before this call, so nothing was staged.

    `warnings` are failures that cost neither rows nor exactness.
    """

    batch: Batch
    rows_in: int
    already: bool
    sinks: Mapping[SinkName, Published]
    stage_ms: int = 0
    decide_ms: int = 0
    publish_ms: int = 0
    dropped: DroppedRows = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """What a start recovered: the newest decision, if any, published again. `sinks` says where it was missing.

    `replay`: the same of a replay that was decided and not published everywhere.
    """

    generation: Generation
    summary: Summary
    decision: Decision | None
    sinks: Mapping[SinkName, Published]
    swept: tuple[str, ...]
    warnings: tuple[str, ...]
    replay: Mapping[SinkName, Published] = field(default_factory=dict)

    @property
    def batch(self) -> Batch | None:
        return None if self.decision is None else self.decision.batch

    @property
    def rolled_forward(self) -> bool:
        """Whether rows of a decided batch were missing in some sink before, and are there now.

        A sink without rows of the batch may leave no trace of it, and then publishes it again at every start.
        """
        decision = self.decision
        return decision is not None and any(
            not published.already and bool(decision.of_sink(name)) for name, published in self.sinks.items()
        )
