"""Makes the exporters that a pipeline file asks for. Their packages are imported only if it asks for them."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import DependencyMissing
from penstock.observe.export.observation import Observation
from penstock.spec.pipeline import PipelineSettings
from penstock.support.extras import install_command

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from penstock.observe.export.facts import Exporter
    from penstock.observe.status_reader import StatusReader


def observation_of(settings: PipelineSettings, *, directory: Path | None, status: "Callable[[], StatusReader]") -> Observation:
    """Return what tells others of a run. `directory`: where commands run. `status`: reads the pipeline's status, for metrics.

    Raises DependencyMissing if a package is.
    """
    queues: dict[str, Callable[[], int]] = {}

    def lost() -> Mapping[str, int]:
        return {name: count() for name, count in queues.items()}

    exporters: list[Exporter] = []
    if settings.on_event:
        with _needs("http", "Events are posted with the library requests"):
            from penstock.observe.export.events import Events

            events = Events(settings.pipeline, settings.on_event, home=settings.home, directory=directory)
        queues |= {f"on_event.{name}": count for name, count in events.lost().items()}
        exporters.append(events)
    if settings.openlineage is not None:
        with _needs("openlineage", "Lineage is sent with OpenLineage's client"):
            from penstock.observe.export.lineage import Lineage

        lineage = Lineage(
            settings.pipeline, settings.openlineage, home=settings.home, sources=settings.sources, sinks=settings.sinks
        )
        queues["openlineage"] = lambda: lineage.queue.lost
        exporters.append(lineage)
    if settings.opentelemetry is not None:
        with _needs("otel", "Traces and metrics are sent with OpenTelemetry's SDK"):
            from penstock.observe.export.telemetry import Telemetry

        telemetry = Telemetry(settings.pipeline, settings.opentelemetry, sinks=settings.sinks, status=status(), lost=lost)
        queues["opentelemetry"] = lambda: telemetry.queue.lost
        exporters.append(telemetry)
    return Observation(exporters)


def columns_of(schema: "StructType") -> list[tuple[str, str]]:
    """Return name and type of each column. Comments and metadata are left out: they can hold anything."""
    return [(field.name, field.dataType.simpleString()) for field in schema.fields]


@contextmanager
def _needs(extra: str, what: str) -> Iterator[None]:
    try:
        yield
    except ImportError as missing:
        raise DependencyMissing(f"{what}, which is not installed.", remedy=f"Install it: {install_command(extra)}") from missing
