"""The newest batch of each pipeline as metrics for Prometheus: the life of a batch that page, `watch` and `history` show, too.

Labels are names of steps and of sinks, never of batches. Needs the extra `metrics`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from penstock.errors import PenstockError
from penstock.observe.batch_life import BatchLife, newest_batch
from penstock.observe.page.watched import Watched

_VALUES: Mapping[str, tuple[str, Callable[[BatchLife], float | None]]] = {
    "penstock_batch_id": ("Batch id of the newest decided batch that was measured to its end.", lambda life: life.entry.batch_id),
    "penstock_batch_rows": ("Rows that the transform gave for it.", lambda life: life.entry.rows_out),
    "penstock_batch_rows_read": ("Records that its offsets say; absent if nobody counted them.", lambda life: life.rows_read),
    "penstock_batch_duration_seconds": (
        "Time from its first measured step to the end of its last one.",
        lambda life: life.duration_ms / 1000 if life.steps else None,
    ),
    "penstock_batch_replays": ("How often Spark ran it again, and nothing was delivered twice.", lambda life: life.replays),
}
_STEP = "penstock_batch_step_duration_seconds"


class BatchCollector(Collector):
    """Reads the newest batches whenever it is scraped. A pipeline whose ledger cannot be read has none of these metrics."""

    def __init__(self, pipelines: Sequence[Watched]) -> None:
        self._pipelines = pipelines

    def collect(self) -> Iterator[Metric]:
        """Return the metrics of this moment. Called by `prometheus_client` in the thread of each request."""
        found = {watched.name: life for watched in self._pipelines if (life := _newest(watched)) is not None}
        for name, (documentation, value) in _VALUES.items():
            family = GaugeMetricFamily(name, documentation, labels=["pipeline"])
            for pipeline, life in found.items():
                if (measured := value(life)) is not None:
                    family.add_metric([pipeline], measured)
            yield family
        yield _steps(found)

    def describe(self) -> Iterator[Metric]:
        """Return nothing, so that registering does not look at anything."""
        yield from ()


def _newest(watched: Watched) -> BatchLife | None:
    try:
        return newest_batch(watched.newest_lives())
    except PenstockError:
        return None  # `penstock_up` says so


def _steps(found: Mapping[str, BatchLife]) -> Metric:
    family = GaugeMetricFamily(
        _STEP,
        "Time of a step of it; `sink` is empty unless it is a publication.",
        labels=["pipeline", "step", "sink"],
    )
    for pipeline, life in found.items():
        for step in life.steps:
            family.add_metric([pipeline, step.kind.name.lower(), step.sink or ""], step.duration_ms / 1000)
    return family
