"""The page as one file, which needs nothing else: to send, to keep, to open without a server."""

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.observe.condition import State
from penstock.observe.page.charts import HEIGHT, STEP_CLASSES, WIDTH, timeline
from penstock.observe.page.links import FileLinks
from penstock.observe.page.rendering import render
from penstock.observe.page.views import PipelineView, views_of
from penstock.observe.page.watched import Watched

LARGEST_BYTES = 200_000


@dataclass(frozen=True, slots=True)
class Extent:
    """How much is shown of each pipeline: entries of the history, batches in detail, charts, anything but the overview."""

    rows: int
    details: int
    charts: bool = True
    sections: bool = True


EXTENTS = (
    Extent(60, 12),
    Extent(40, 6),
    Extent(20, 3),
    Extent(10, 1),
    Extent(5, 0),
    Extent(0, 0, charts=False),
    Extent(0, 0, charts=False, sections=False),
)
_LONGEST_OFFSETS = 600

SHARED_VALUES = {
    "width": WIDTH,
    "height": HEIGHT,
    "classes": STEP_CLASSES,
    "longest": _LONGEST_OFFSETS,
    "steps_of": lambda life: zip(life.steps, timeline(life), strict=True),
}
"""What every template that shows a pipeline needs."""


def report(pipelines: Sequence[Watched], *, now_ms: int) -> str:
    """Return the HTML, smaller than LARGEST_BYTES: with many pipelines it shows less of each."""
    views = views_of(pipelines, now_ms=now_ms)
    page = ""
    for extent in EXTENTS:
        page = _rendered(views, extent, now_ms=now_ms)
        if len(page.encode()) < LARGEST_BYTES:
            break
    return page


def _rendered(views: Sequence[PipelineView], extent: Extent, *, now_ms: int) -> str:
    links = FileLinks(
        numbers={view.name: number for number, view in enumerate(views, start=1)},
        detailed={view.name: {life.entry.position for life in view.batches[: extent.details]} for view in views},
        sections=extent.sections,
        shows_titles=len(views) == 1,
    )
    values = {"views": views, "summary": summary(views), "links": links, "rows": extent.rows, "details": extent.details}
    values |= {"charted": extent.charts, "sections": extent.sections}
    return render("report.html", SHARED_VALUES | values, now_ms=now_ms)


def summary(views: Sequence[PipelineView]) -> str:
    """Return how many pipelines do how, the worst first: `1 failed, 3 healthy`; of a single pipeline its name and state."""
    if len(views) == 1:
        return f"{views[0].name} {views[0].condition.state.value}"
    numbers = {state: sum(view.condition.state is state for view in views) for state in State}
    return ", ".join(f"{number:,} {state.value}" for state, number in numbers.items() if number)
