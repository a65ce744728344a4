"""Gives the sources in a pipeline's checkpoint their names, as the ledger has them."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from penstock.checkpoint.act import Act
from penstock.checkpoint.acting import Performed
from penstock.checkpoint.migration import plan_migration
from penstock.commit.publication import continued_decision
from penstock.core.model import BatchId, SourceName, Summary
from penstock.errors import Refused, SourcesChanged
from penstock.run.assembly import DeliveryPlan
from penstock.run.checkpoint_acts import perform_act, require_query, require_same_ends
from penstock.run.continuation import require_continuation
from penstock.run.named_sources import has_own_name
from penstock.run.runtime import Runtime
from penstock.spec.pipeline import PipelineSettings


def migrate_checkpoint(settings: PipelineSettings, plan: DeliveryPlan, *, yes: bool) -> Performed:
    """Give the sources names where the checkpoint has them by their place. With `yes` fences as `rewind_checkpoint` does.

    The names are those that the newest batch was decided with. Raises Refused, SourcesChanged, CheckpointDamaged.
    """
    return perform_act(plan, "migrate", {}, partial(_migrate, settings=settings), yes=yes)


def _migrate(runtime: Runtime, *, settings: PipelineSettings) -> Act:
    names = _names(runtime, settings)
    act = plan_migration(runtime.checkpoint.files, names=names)
    if settings.named_sources:
        return act
    return replace(act, notes=("Write `named_sources: true` at the top of the pipeline file, or the next start is refused.",))


def _names(runtime: Runtime, settings: PipelineSettings) -> Sequence[SourceName]:
    """Return the names of the sources by their place in the checkpoint. Raises Refused where the ledger does not prove them."""
    tail = runtime.ledger.tail()
    summary = Summary() if tail is None else tail.summary
    found = continued_decision(runtime.ledger, summary)
    planned = runtime.checkpoint.latest_offsets_id()
    if found is None or planned is None:
        raise Refused(
            f"No batch of the checkpoint {runtime.checkpoint.location} is decided, so nothing tells which source is which.",
            remedy="Let the pipeline deliver one batch without `named_sources` first. If it never delivered any, remove the "
            "checkpoint.",
        )
    require_query(runtime.checkpoint.query_id(), summary)
    require_continuation(summary, runtime.checkpoint)
    batch = found[0].batch
    for batch_id in {batch.batch_id, BatchId(max(batch.batch_id - 1, 0))}:
        require_same_ends(runtime, batch_id)
    names = [each.source for each in batch.offsets]
    entry = runtime.checkpoint.offsets(planned)
    if entry is None or entry.named or not has_own_name(entry, names):
        raise Refused(
            f"The checkpoint {runtime.checkpoint.location} has its sources by name already."
            if entry is not None and entry.named
            else "The query reads a source in several places, which cannot all have its name.",
            remedy="There is nothing to migrate: start the pipeline, with `named_sources: true` if the checkpoint has names.",
        )
    lacking = next((name for name in names if name not in settings.sources), None)
    if lacking is not None:
        raise SourcesChanged(
            f"Batch {batch.batch_id} was decided with source {lacking}, which the pipeline file does not have.",
            remedy="Put the sources back as they were, run the command again, and change them then.",
        )
    return names
