"""Requests of a pipeline to places that bill them: counted over its newest batches, else estimated."""

from contextlib import suppress
from dataclasses import dataclass
from itertools import islice

from penstock.core.model import RequestEstimate
from penstock.errors import PenstockError
from penstock.observe.history import history
from penstock.protocols import EstimatesRequests, Ledger
from penstock.run.assembly import DeliveryPlan, sinks_of
from penstock.run.operations import opened_ledger
from penstock.run.query import FENCE_LOOK_S

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


def batches_per_day(interval_ms: int | None) -> int | None:
    """Return how many batches a trigger of this interval starts at most, None without one."""
    return _DAY_S * 1000 // interval_ms if interval_ms else None


def costs_of(plan: DeliveryPlan, *, interval_ms: int | None) -> Costs | None:
    """Return the costs, None where no request is billed. Reads the newest ledger entries. `interval_ms` is the trigger's."""
    with opened_ledger(plan) as ledger:
        estimated = _estimated((ledger, *sinks_of(plan)))
        if estimated is None:
            return None
        counted = list[int]()
        with suppress(PenstockError):  # `check` says what is wrong with the ledger
            counted = _counted(ledger)
    return Costs(
        requests_per_batch=sum(counted) / len(counted) if counted else estimated.small,
        measured_batches=len(counted),
        estimated=estimated,
        interval_ms=interval_ms or None,
    )


def _estimated(parts: tuple[object, ...]) -> RequestEstimate | None:
    each = [part.estimated_requests().items() for part in parts if isinstance(part, EstimatesRequests)]
    known = [estimate for places in each for _, estimate in places]
    return sum(known, RequestEstimate()) if known else None


def _counted(ledger: Ledger) -> list[int]:
    """Return the requests of the newest batches that know how many they took to stage and to publish."""
    rows = islice(history(ledger.newest_first()), _LOOKED_AT)
    known = (
        row.stage_requests + row.publish_requests
        for row in rows
        if row.stage_requests is not None and row.publish_requests is not None
    )
    return list(islice(known, MEASURED_BATCHES))
