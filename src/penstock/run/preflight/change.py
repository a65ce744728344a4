"""One difference to the last run, and what it means for the next one."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum

from penstock.core.model import Generation
from penstock.errors import PipelineChanged, SourcesChanged


class Verdict(str, Enum):
    """What a change means for the next run."""

    SAFE = "safe"
    SAFE_WITH_ACTION = "safe_with_action"
    BREAKS = "breaks"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    """A verdict, its reason, and what to do before the start or in its place. `action` is empty where nothing is to be done."""

    verdict: Verdict
    reason: str
    action: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineChange:
    """One part of the pipeline that differs from the last run.

    `before` and `now` are its values as text: None where the part is not there or has its default, empty for a whole source, sink
    or account. Values of more than 200 characters are shown by their digest, secrets by `***`.
    """

    part: str
    before: str | None
    now: str | None
    verdict: Verdict
    reason: str
    action: str = ""

    @classmethod
    def by(cls, ruling: Ruling, part: str, *, before: str | None, now: str | None) -> "PipelineChange":
        """Return the change of `part` with the ruling's verdict."""
        return cls(part=part, before=before, now=now, verdict=ruling.verdict, reason=ruling.reason, action=ruling.action)


@dataclass(frozen=True, slots=True, kw_only=True)
class Preflight:
    """How a pipeline differs from the run that delivered its newest batch.

    `last_run` is the generation of that run, None if no batch of this checkpoint is decided. `described`: whether the run left a
    description; without one only what ledger and checkpoint hold is compared. `uncompared`: parts whose values came from the
    environment, which are not kept.
    """

    last_run: Generation | None = None
    described: bool = False
    changes: tuple[PipelineChange, ...] = ()
    uncompared: tuple[str, ...] = ()

    @property
    def breaks(self) -> bool:
        """Whether `run` would be refused because of a change."""
        return any(change.verdict is Verdict.BREAKS for change in self.changes)

    def with_ruling(self, ruling: Ruling, part: str) -> "Preflight":
        """Return the same with another ruling on the change of `part`, if it changed."""
        changes = [
            PipelineChange.by(ruling, part, before=change.before, now=change.now) if change.part == part else change
            for change in self.changes
        ]
        return replace(self, changes=worst_first(changes))

    def require_startable(self) -> None:
        """Raise PipelineChanged, or SourcesChanged for a source, for the first change that breaks the pipeline."""
        for change in self.changes:
            if change.verdict is Verdict.BREAKS:
                message = f"Since the last run {described(change)}. {change.reason}"
                if change.part.startswith("sources"):
                    raise SourcesChanged(message, remedy=change.action)
                raise PipelineChanged(message, remedy=change.action)


def described(change: PipelineChange) -> str:
    """Return what changed, as a part of a sentence."""
    if change.before is None or change.now is None:
        done = "added" if change.before is None else "removed"
        value = change.now or change.before
        return f"{change.part} was {done}" + (f" ({value})" if value else "")
    return f"{change.part} changed from {change.before} to {change.now}"


def safe(reason: str) -> Ruling:
    """Return the ruling that the next run goes on exactly."""
    return Ruling(verdict=Verdict.SAFE, reason=reason)


def safe_after(action: str, reason: str) -> Ruling:
    """Return the ruling that the next run goes on exactly if `action` is done."""
    return Ruling(verdict=Verdict.SAFE_WITH_ACTION, reason=reason, action=action)


def breaking(reason: str, *, action: str) -> Ruling:
    """Return the ruling that the next run would fail, lose rows or deliver rows twice."""
    return Ruling(verdict=Verdict.BREAKS, reason=reason, action=action)


def worst_first(changes: Iterable[PipelineChange]) -> tuple[PipelineChange, ...]:
    """Return `changes` with those first that break the pipeline, then those that need an action."""
    order = (Verdict.BREAKS, Verdict.SAFE_WITH_ACTION, Verdict.SAFE)
    return tuple(sorted(changes, key=lambda change: order.index(change.verdict)))
