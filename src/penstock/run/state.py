"""`penstock state`: the state of a query, by its checkpoint and by what its driver noted of its batches, without Spark."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from penstock.checkpoint.files import open_files
from penstock.checkpoint.state_layout import OperatorLayout, state_layout
from penstock.core.model import BatchId, Finding, PipelineName
from penstock.observe.state_size import (
    DISK,
    MEMORY,
    Forecast,
    OperatorSize,
    StateSize,
    describe_forecast,
    forecast,
    newest_in,
    state_size,
)
from penstock.protocols import Ledger
from penstock.run.assembly import DeliveryPlan, ledger_of
from penstock.spec.state_limits import StateLimits
from penstock.support import formatting


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorState:
    """One stateful operator: what the checkpoint has of it, and what Spark measured in the newest batch that was noted."""

    on_disk: OperatorLayout
    measured: OperatorSize | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StateReport:
    """The state of a pipeline's query. `size_bytes` are those of the directory `state` of the checkpoint, all versions together.

    `batch_id` and `at_ms` are of the newest batch whose metrics were noted; None if none were. The forecast for `disk` is of the
    checkpoint.
    """

    pipeline: PipelineName
    checkpoint: str
    batch_id: BatchId | None
    at_ms: int | None
    size_bytes: int
    operators: tuple[OperatorState, ...]
    forecasts: tuple[Forecast, ...]


def state_report(plan: DeliveryPlan, *, limits: StateLimits | None = None) -> StateReport:
    """Return the state of a pipeline, beside a running driver or not. Each of `limits` that is given replaces the settings'.

    Costs a listing per operator, partition and store. Raises CheckpointDamaged, Usage, Retryable.
    """
    place = plan.settings.checkpoint
    layouts = state_layout(open_files(place.url, options=place.options))
    limits = merged(limits_of(plan), limits)
    with closing(ledger_of(plan)) as ledger:
        noted = state_size(plan.settings.home, limits, newest=newest_in(ledger.tail()))
    operators = tuple(_operator(layout, noted, output_mode=plan.output_mode) for layout in layouts)
    size_bytes = sum(layout.size_bytes for layout in layouts)
    of_memory = () if noted is None else (each for each in noted.forecasts if each.of == MEMORY)
    return StateReport(
        pipeline=plan.pipeline,
        checkpoint=place.url,
        batch_id=None if noted is None else noted.batch_id,
        at_ms=None if noted is None else noted.at_ms,
        size_bytes=size_bytes,
        operators=operators,
        forecasts=(*of_memory, *_of_checkpoint(operators, size_bytes, limits)),
    )


def state_findings(plan: DeliveryPlan, ledger: Ledger) -> Iterator[Finding]:
    """Yield for `penstock check` how large the state is, with a warning if it reaches a limit soon; nothing without state."""
    found = state_size(plan.settings.home, limits_of(plan), newest=newest_in(ledger.tail()))
    if found is None:
        return
    if found.near is not None:
        yield Finding(subject="state", ok=True, warns=True, message=describe_forecast(found.near))
    else:
        rows = formatting.counted(found.rows, "row")
        message = f"{rows} after batch {found.batch_id}, {formatting.size(found.memory_bytes)} in memory"
        yield Finding(subject="state", ok=True, message=message)


def limits_of(plan: DeliveryPlan) -> StateLimits:
    """Return the limits of the settings; a `Delivery` has none."""
    found = getattr(plan.settings, "state_limits", None)
    return found if isinstance(found, StateLimits) else StateLimits()


def merged(settings: StateLimits, given: StateLimits | None) -> StateLimits:
    """Return the limits of `settings`, each replaced by the one that is given."""
    if given is None:
        return settings
    memory = settings.memory if given.memory is None else given.memory
    return StateLimits(memory=memory, disk=settings.disk if given.disk is None else given.disk)


def _operator(layout: OperatorLayout, noted: StateSize | None, *, output_mode: str | None) -> OperatorState:
    sizes: Sequence[OperatorSize] = () if noted is None else noted.operators
    size = next((each for each in sizes if each.operator_id == layout.operator_id), None)
    if size is not None and layout.name is not None and size.name != layout.name:
        size = next((each for each in sizes if each.name == layout.name), None)
    if layout.name == _AGGREGATION and output_mode == "complete":
        layout = replace(layout, bounded=False)
    return OperatorState(on_disk=layout, measured=size)


_AGGREGATION = "stateStoreSave"


def _of_checkpoint(operators: Sequence[OperatorState], size_bytes: int, limits: StateLimits) -> Iterator[Forecast]:
    """Yield the forecast for the bytes of the checkpoint: they grow as the rows do."""
    if limits.disk is None or not operators:
        return
    per_day, measured_ms = None, 0
    for operator in operators:
        size = operator.measured
        if size is not None and size.growth is not None and size.rows:
            measured_ms = size.growth.measured_ms
            per_day = (per_day or 0) + round(operator.on_disk.size_bytes * size.growth.rows_per_day / size.rows)
    yield forecast(DISK, size_bytes, limit_bytes=limits.disk, bytes_per_day=per_day, measured_ms=measured_ms)
