"""What the coordinator is told and what it answers: frozen values for progress, status and reports."""

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.core.model import Batch, Decision, Generation, Published, SinkName, Staged, Summary
from penstock.core.topics import GapAccepted, TopicRead


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedBatch:
    """What the staging pass of a batch returned. `requests`: what its tasks sent, None where nobody counts.

    `topics` and `gaps`: what was read from Kafka, and what was missing there.
    """

    pieces: tuple[Staged, ...]
    rows_in: int
    schema: str
    stage_ms: int = 0
    requests: int | None = None
    topics: tuple[TopicRead, ...] = ()
    gaps: tuple[GapAccepted, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """One batch's way through the protocol, for progress and reports. `already`: it was decided before this call.

    `warnings`: what did not work and costs neither rows nor exactness.
    """

    batch: Batch
    rows_in: int
    already: bool
    sinks: Mapping[SinkName, Published]
    stage_ms: int = 0
    decide_ms: int = 0
    publish_ms: int = 0
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """What opening found: the newest decision, if any, published again (`sinks` tells where it was missing)."""

    generation: Generation
    summary: Summary
    decision: Decision | None
    sinks: Mapping[SinkName, Published]
    swept: tuple[str, ...]
    warnings: tuple[str, ...]

    @property
    def batch(self) -> Batch | None:
        """The newest decided batch."""
        return None if self.decision is None else self.decision.batch

    @property
    def rolled_forward(self) -> bool:
        """Whether a decided batch was missing somewhere and is there now."""
        return any(not published.already for published in self.sinks.values())
