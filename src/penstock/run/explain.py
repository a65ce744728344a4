"""`penstock explain`: how a batch of this pipeline will go, before one runs, and what requests it will cost."""

from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import islice

from pyspark.sql import SparkSession

from penstock.core.model import RequestEstimate, SinkName, SourceName
from penstock.errors import PenstockError
from penstock.observe.history import history
from penstock.protocols import EstimatesRequests, Ledger
from penstock.run.assembly import DeliveryPlan, ledger_of, sinks_of
from penstock.run.connect import is_of_client
from penstock.run.query import FENCE_LOOK_S
from penstock.run.start import frame_of
from penstock.spec.pipeline import PipelineSettings, without_ledger
from penstock.stage.path import DRIVER_BYTES, DRIVER_ROWS
from penstock.support.secret import redact, scrub
from penstock.transform.guarantee import stateful_operators
from penstock.transform.plan import plan_of, source_order

AT_ONCE = "before Spark goes on with the next batch"
_OF_SPARK: Mapping[str, str] = {"publish": "Spark's own sink of that type: after a crash rows come again"}
MEASURED_BATCHES = 20
_LOOKED_AT = 2 * MEASURED_BATCHES
"""Entries of the ledger that are read at most; each may take a request."""
_DAY_S = 24 * 60 * 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """What a pipeline costs in requests. Every run looks `looks_per_day` times whether a newer one took over.

    `requests_per_batch` is the mean of the newest `measured_batches`; if there are none, an estimate for batches that have one
    small file for each account (`estimated.small`). `interval_ms` is the trigger's, None if it has none.
    """

    requests_per_batch: float
    measured_batches: int
    estimated: RequestEstimate
    interval_ms: int | None
    looks_per_day: int = int(_DAY_S / FENCE_LOOK_S)

    @property
    def batches_per_day(self) -> int | None:
        """Upper limit: a batch that takes longer than the interval delays the next one, and without rows there is none."""
        return batches_per_day(self.interval_ms)

    @property
    def requests_per_day(self) -> int | None:
        """Upper limit for all batches together, None without an interval."""
        batches = self.batches_per_day
        return None if batches is None else round(batches * self.requests_per_batch)

    @property
    def look_requests_per_day(self) -> int:
        """Requests of a run that never ends, for looking whether it is still the newest."""
        return round(self.looks_per_day * self.estimated.look)


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """How one batch will go. `scans` counts how often each source is read per batch: once, unless the transform names it again.

    `batches_per_day` is None where the trigger sets no interval, `costs` where no request is billed.
    """

    pipeline: str
    scans: Mapping[SourceName, int]
    stateful: tuple[str, ...]
    columns: tuple[str, ...]
    path: str
    sinks: Mapping[SinkName, Mapping[str, str]]
    ledger: str
    batches_per_day: int | None
    costs: Costs | None = None
    publishing: str = AT_ONCE


def explain(settings: PipelineSettings, delivery: DeliveryPlan, spark: SparkSession) -> Explanation:
    """Analyse the query and return how a batch will go, for `Pipeline.explain`. Runs nothing. Raises Usage."""
    frame, sources = frame_of(settings, spark, modules=delivery.modules)
    plan = plan_of(frame)
    order = source_order(plan, tuple(sources))
    alone = without_ledger(settings)
    stateful = tuple(operator.name for operator in stateful_operators(plan))
    return Explanation(
        pipeline=settings.pipeline,
        scans={name: sum(scan.partition("#")[0] == name for scan in order) for name in sources},
        stateful=stateful,
        columns=tuple(scrub(f"{field.name} {field.dataType.simpleString()}") for field in frame.schema.fields),
        path=_path(stateful=bool(stateful)) if alone is None else alone,
        sinks={
            sink.name: {
                **(settings.sinks[sink.name].taking() if sink.name in settings.sinks else {}),
                **(sink.describe() if alone is None else _OF_SPARK),
            }
            for sink in sinks_of(delivery)
        },
        ledger="one append per batch: " + redact(settings.ledger.url) if alone is None else "no entries",
        batches_per_day=batches_per_day(settings.trigger.processing_time),
        costs=costs_of(delivery, interval_ms=settings.trigger.processing_time),
        publishing="beside the next batch" if settings.publish_behind and not is_of_client(spark) else AT_ONCE,
    )


def _path(*, stateful: bool) -> str:
    if stateful:
        return "tasks stage every batch (the query keeps state)"
    return (
        f"a batch after a small one (at most {DRIVER_ROWS:,} rows and {DRIVER_BYTES >> 20} MiB) is staged by the driver, which "
        "saves starting Python workers; the others, and the first, by tasks"
    )


def batches_per_day(interval_ms: int | None) -> int | None:
    """Return how many batches a trigger of this interval starts at most, None without one."""
    return _DAY_S * 1000 // interval_ms if interval_ms else None


def costs_of(plan: DeliveryPlan, *, interval_ms: int | None) -> Costs | None:
    """Return the costs, None where no request is billed. Reads the newest ledger entries. `interval_ms` is the trigger's."""
    with closing(ledger_of(plan)) as ledger:
        parts = [part for part in (ledger, *sinks_of(plan)) if isinstance(part, EstimatesRequests)]
        estimates = [estimate for part in parts for estimate in part.estimated_requests().values()]
        if not estimates:
            return None
        counted = list[int]()
        with suppress(PenstockError):  # `check` says what is wrong with the ledger
            counted = _counted(ledger)
    estimated = sum(estimates, RequestEstimate())
    return Costs(
        requests_per_batch=sum(counted) / len(counted) if counted else estimated.small,
        measured_batches=len(counted),
        estimated=estimated,
        interval_ms=interval_ms or None,
    )


def _counted(ledger: Ledger) -> list[int]:
    """Return the requests of the newest batches that know how many they took to stage and to publish."""
    rows = islice(history(ledger.newest_first()), _LOOKED_AT)
    known = (
        row.stage_requests + row.publish_requests
        for row in rows
        if row.stage_requests is not None and row.publish_requests is not None
    )
    return list(islice(known, MEASURED_BATCHES))
