"""Geometry of the page's charts: numbers for SVG, never text from outside."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from penstock.observe.batch_life import BatchLife, StepKind

WIDTH, HEIGHT = 720, 120
SHOWN = 60
_GAP = 2.0
SPARK_WIDTH, SPARK_HEIGHT = 140, 28

STEP_CLASSES = {
    StepKind.FETCH: "fetch",
    StepKind.OFFSET_LOG: "log",
    StepKind.PLAN: "plan",
    StepKind.STAGE: "stage",
    StepKind.WAIT: "wait",
    StepKind.DECIDE: "decide",
    StepKind.PUBLISH: "publish",
    StepKind.COMMIT_LOG: "commit",
}
"""The class of each step in the style sheet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A rectangle. `kind`: its class in the style sheet."""

    x: float
    y: float
    width: float
    height: float
    kind: str = "bar"


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """The boxes of one batch."""

    life: BatchLife
    boxes: tuple[Box, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Columns, the oldest batch on the left. `top` is the value at the upper edge; `kinds` are the steps that occur."""

    columns: tuple[Column, ...]
    top: float
    kinds: tuple[StepKind, ...] = ()


def rate_chart(newest_first: Sequence[BatchLife]) -> Chart:
    """Return a column per batch, as high as its rows per second."""
    lives = _shown(newest_first)
    rates = [life.rows_per_s or 0.0 for life in lives]
    top = _round_up(max(rates, default=0.0))
    places = _places(len(lives))
    columns = [
        Column(life=life, boxes=(_box(x, width, 0.0, rate, top),))
        for life, rate, (x, width) in zip(lives, rates, places, strict=True)
    ]
    return Chart(columns=tuple(columns), top=top)


def step_chart(newest_first: Sequence[BatchLife]) -> Chart:
    """Return a column per batch, as high as it took, of its steps one above another."""
    lives = _shown(newest_first)
    spent = [_spent(life) for life in lives]
    top = _round_up(max((sum(each.values()) for each in spent), default=0.0))
    columns = []
    for life, steps, (x, width) in zip(lives, spent, _places(len(lives)), strict=True):
        below, boxes = 0.0, []
        for kind, duration_ms in steps.items():
            boxes.append(_box(x, width, below, duration_ms, top, kind=STEP_CLASSES[kind]))
            below += duration_ms
        columns.append(Column(life=life, boxes=tuple(boxes)))
    return Chart(columns=tuple(columns), top=top, kinds=tuple(kind for kind in StepKind if any(kind in each for each in spent)))


def sparkline(newest_first: Sequence[BatchLife]) -> str:
    """Return the points of a polyline of rows per second; empty for fewer than two batches."""
    rates = [life.rows_per_s or 0.0 for life in _shown(newest_first)]
    top = max(rates, default=0.0)
    if len(rates) < 2 or not top:
        return ""
    across, up = SPARK_WIDTH / (len(rates) - 1), (SPARK_HEIGHT - 4) / top
    return " ".join(f"{number * across:.1f},{SPARK_HEIGHT - 2 - rate * up:.1f}" for number, rate in enumerate(rates))


def timeline(life: BatchLife) -> Sequence[Box]:
    """Return a box for each step of a batch, in its order: where it lies in the whole, of 100 wide."""
    percent = 100 / (life.duration_ms or 1)
    return [
        Box(x=step.after_ms * percent, y=0, width=max(0.4, step.duration_ms * percent), height=10, kind=STEP_CLASSES[step.kind])
        for step in life.steps
    ]


def _shown(newest_first: Iterable[BatchLife]) -> list[BatchLife]:
    decided = [life for life in newest_first if life.entry.kind == "decided"]
    return decided[:SHOWN][::-1]


def _spent(life: BatchLife) -> dict[StepKind, float]:
    """Return how long each step took; of publications side by side the longest."""
    spent = dict[StepKind, float]()
    for step in life.steps:
        spent[step.kind] = max(spent.get(step.kind, 0.0), step.duration_ms)
    return spent


def _places(number: int) -> list[tuple[float, float]]:
    """Return x and width of each column. Few columns stay narrow, at the right edge, where the newest is."""
    each = WIDTH / max(number, SHOWN // 2)
    begin = WIDTH - each * number
    return [(begin + index * each, max(1.0, each - _GAP)) for index in range(number)]


def _box(x: float, width: float, below: float, value: float, top: float, *, kind: str = "bar") -> Box:
    scale = HEIGHT / top if top else 0.0
    height = value * scale
    y = round(HEIGHT - below * scale - height, 1)
    return Box(x=round(x, 1), y=y, width=round(width, 1), height=round(height, 1), kind=kind)


def _round_up(value: float) -> float:
    """Return a round number, not below `value` and not far above."""
    if value <= 0:
        return 0.0
    power = 1.0
    while power * 10 <= value:
        power *= 10
    while power > value:
        power /= 10
    return next(power * factor for factor in (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if power * factor >= value)
