"""How large a query's state is, how fast it grows, and when it reaches a limit: from what its driver noted of its batches."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from penstock.core.model import BatchId, Entry
from penstock.observe.state_samples import DAY_MS, OperatorSample, StateSample, state_samples
from penstock.spec.state_limits import StateLimits
from penstock.support import formatting

MEASURED_MS = 3_600_000
"""A forecast from a shorter time is no reason to warn: a query that has just begun catches up with its input."""
NEAR_MS = 3 * DAY_MS
"""A limit that is reached sooner is near. So says the alert PenstockStateGrows, too."""
_FAR_MS = 3_650 * DAY_MS
MEMORY, DISK = "memory", "disk"


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """Growth in a day, measured over the last day, or over `measured_ms` where less is known. Negative if it shrinks."""

    measured_ms: int
    rows_per_day: int
    memory_bytes_per_day: int
    disk_bytes_per_day: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorSize:
    """The state of one operator after the newest batch that was noted. `growth` is None as long as only one batch was."""

    operator_id: int
    name: str
    rows: int
    memory_bytes: int
    disk_bytes: int | None
    rows_late: int
    growth: Growth | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """When the state of all operators reaches a limit. `of` is `memory` or `disk`.

    `reached_in_ms` counts from the newest sample: 0 if it is reached, None if the state does not grow towards it.
    """

    of: str
    limit_bytes: int
    size_bytes: int
    reached_in_ms: int | None
    measured_ms: int

    @property
    def is_reached(self) -> bool:
        return self.size_bytes >= self.limit_bytes

    @property
    def is_known(self) -> bool:
        """Whether the limit is reached, or the growth was measured for long enough to say when it will be."""
        return self.is_reached or (self.reached_in_ms is not None and self.measured_ms >= MEASURED_MS)

    @property
    def is_near(self) -> bool:
        """Whether a person should look at it."""
        return self.is_known and (self.reached_in_ms or 0) < NEAR_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class StateSize:
    """The state of a query after batch `batch_id`, and a forecast for each limit that can be compared."""

    batch_id: BatchId
    at_ms: int
    operators: tuple[OperatorSize, ...]
    forecasts: tuple[Forecast, ...] = ()

    @property
    def rows(self) -> int:
        return sum(operator.rows for operator in self.operators)

    @property
    def memory_bytes(self) -> int:
        return sum(operator.memory_bytes for operator in self.operators)

    @property
    def disk_bytes(self) -> int | None:
        """The size of RocksDB's tables, None where no operator has any."""
        return _sum([operator.disk_bytes for operator in self.operators])

    @property
    def near(self) -> Forecast | None:
        """The forecast that a person should look at, None if there is none."""
        near = (forecast for forecast in self.forecasts if forecast.is_near)
        return min(near, key=lambda forecast: forecast.reached_in_ms or 0, default=None)


def state_size(home: str, limits: StateLimits, *, newest: int | None = None) -> StateSize | None:
    """Return the state by what was noted in `home` of batches up to `newest`; None if nothing was: a query may keep none."""
    samples = state_samples(home, newest=newest)
    return size_of(samples, limits) if samples else None


def newest_in(tail: Entry | None) -> int | None:
    """Return the newest batch that a ledger holds, up to which samples count; None without a ledger, where all do."""
    return None if tail is None else (tail.summary.next_batch_id or 0) - 1


def size_of(samples: Sequence[StateSample], limits: StateLimits) -> StateSize:
    """Return the state after the last of `samples`, which are of one query."""
    first, last = _before(samples), samples[-1]
    measured_ms = max(0, last.at_ms - first.at_ms)  # clocks are set
    operators = tuple(
        OperatorSize(
            operator_id=number,
            name=now.name,
            rows=now.rows,
            memory_bytes=now.memory_bytes,
            disk_bytes=now.disk_bytes,
            rows_late=now.rows_late,
            growth=_growth(before, now, measured_ms=measured_ms) if measured_ms > 0 else None,
        )
        for number, (before, now) in enumerate(zip(first.operators, last.operators, strict=True))
    )
    size = StateSize(batch_id=last.batch_id, at_ms=last.at_ms, operators=operators)
    return StateSize(
        batch_id=last.batch_id, at_ms=last.at_ms, operators=operators, forecasts=tuple(_forecasts(size, limits, measured_ms))
    )


def _before(samples: Sequence[StateSample]) -> StateSample:
    """Return the sample to compare the newest one with: the last one that is a day older, else the oldest."""
    day_ago_ms = samples[-1].at_ms - DAY_MS
    return next((sample for sample in reversed(samples) if sample.at_ms <= day_ago_ms), samples[0])


def _growth(before: OperatorSample, now: OperatorSample, *, measured_ms: int) -> Growth:
    def per_day(value: Callable[[OperatorSample], int]) -> int:
        return round((value(now) - value(before)) * DAY_MS / measured_ms)

    has_tables = before.disk_bytes is not None and now.disk_bytes is not None
    return Growth(
        measured_ms=measured_ms,
        rows_per_day=per_day(lambda sample: sample.rows),
        memory_bytes_per_day=per_day(lambda sample: sample.memory_bytes),
        disk_bytes_per_day=per_day(lambda sample: sample.disk_bytes or 0) if has_tables else None,
    )


def _forecasts(size: StateSize, limits: StateLimits, measured_ms: int) -> Iterator[Forecast]:
    growths = [operator.growth for operator in size.operators]
    if limits.memory is not None:
        grows = _sum([None if growth is None else growth.memory_bytes_per_day for growth in growths])
        yield forecast(MEMORY, size.memory_bytes, limit_bytes=limits.memory, bytes_per_day=grows, measured_ms=measured_ms)
    if limits.disk is not None and size.disk_bytes is not None:
        grows = _sum([None if growth is None else growth.disk_bytes_per_day for growth in growths])
        yield forecast(DISK, size.disk_bytes, limit_bytes=limits.disk, bytes_per_day=grows, measured_ms=measured_ms)


def forecast(of: str, size_bytes: int, *, limit_bytes: int, bytes_per_day: int | None, measured_ms: int) -> Forecast:
    """Return when `size_bytes` reaches a limit at this growth, which was measured over `measured_ms`."""
    reached_in_ms = None
    if size_bytes >= limit_bytes:
        reached_in_ms = 0
    elif bytes_per_day is not None and bytes_per_day > 0:
        reached_in_ms = round((limit_bytes - size_bytes) * DAY_MS / bytes_per_day)
    return Forecast(of=of, limit_bytes=limit_bytes, size_bytes=size_bytes, reached_in_ms=reached_in_ms, measured_ms=measured_ms)


def describe_forecast(forecast: Forecast) -> str:
    """Return in a sentence when a limit is reached."""
    limit, now = formatting.size(forecast.limit_bytes), formatting.size(forecast.size_bytes)
    place = f"{limit} {'in memory' if forecast.of == MEMORY else 'on disk'}"
    if forecast.is_reached:
        return f"The state is beyond its limit of {place}: it has {now}."
    if forecast.reached_in_ms is None:
        grows = "it does not grow" if forecast.measured_ms else "its growth is not known yet"
        return f"The state has {now} of {place}, and {grows}."
    measured = f"measured over {formatting.roughly(forecast.measured_ms)}"
    if forecast.reached_in_ms > _FAR_MS:
        return f"The state has {now} of {place}, which it does not reach within ten years ({measured})."
    return f"The state has {now}, and reaches {place} in {formatting.roughly(forecast.reached_in_ms)} ({measured})."


def _sum(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
