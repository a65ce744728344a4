"""What it means that sources came, went or moved, where Spark knows them by their names."""

from dataclasses import dataclass

from penstock.checkpoint.entries import OffsetsEntry
from penstock.checkpoint.spark_checkpoint import SparkCheckpoint
from penstock.core.model import Batch, SourceName
from penstock.protocols import Ledger
from penstock.run.named_sources import SourceProblem, problems, renamed
from penstock.run.preflight.change import Ruling, breaking, safe, safe_after
from penstock.run.preflight.source_rules import added_ruling, removed_ruling

_ADDED = safe("Spark reads it from the next batch on, from where its options say; the others go on where they were.")
_REMOVED = safe_after(
    "Before the change deliver what waits: `penstock run FILE --available-now` with the old file.",
    "Spark forgets where it was: what waits is never read, and a source of that name would begin anew.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedSources:
    """The sources of a plan under a checkpoint that has them by name."""

    problems: tuple[SourceProblem, ...]

    @classmethod
    def of_plan(
        cls, ledger: Ledger, checkpoint: SparkCheckpoint, entry: OffsetsEntry, *, decided: Batch, order: tuple[SourceName, ...]
    ) -> "NamedSources":
        """Return what a plan with the sources in this `order` means. `entry` is that of the newest planned batch."""
        planned = checkpoint.latest_offsets_id()
        assert planned is not None
        found = problems(ledger, checkpoint, entry, planned=planned, decided=decided, sources=order, in_code=False)
        return cls(problems=tuple(found))

    def removed(self, name: str, *, was_read: bool) -> Ruling:
        """Return what a source means that is gone. `was_read`: whether the newest batch has offsets of it."""
        return self._problem_of(name) or _REMOVED if was_read else removed_ruling(was_read=False)

    def added(self, name: str, *, is_read: bool | None, instead_of: str | None) -> Ruling:
        """Return what a new source means. `instead_of`: one that is gone, and that was read."""
        if not is_read:
            return added_ruling(is_read=is_read)
        if instead_of is not None:
            return _breaking(renamed(instead_of, name))
        return self._problem_of(name) or _ADDED

    def order(self) -> Ruling | None:
        """Return what the order of the sources means, None if it does not matter."""
        return self._problem_of(None)

    def _problem_of(self, name: str | None) -> Ruling | None:
        found = next((each for each in self.problems if each.source == name), None)
        return None if found is None else _breaking(found)


def _breaking(problem: SourceProblem) -> Ruling:
    return breaking(problem.message, action=problem.remedy)


def names_ruling(*, named: bool, can_migrate: bool) -> Ruling:
    """Return what it means that the file has `named_sources` as the checkpoint has not. `can_migrate`: each has a name."""
    if not named:
        return breaking("Spark finds no source by its place in a checkpoint that has names.", action="Put `named_sources` back.")
    if not can_migrate:
        return breaking(
            "The query reads a source in several places, which cannot all have its name: the start is refused.",
            action="Take `named_sources` out.",
        )
    return safe_after(
        "Run `penstock checkpoint migrate FILE --yes`.",
        "The checkpoint has its sources by their place, and Spark does not change that: until then the start is refused.",
    )
