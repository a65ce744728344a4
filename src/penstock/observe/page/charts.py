"""Geometry of the page's charts: numbers for SVG, never text from outside."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from penstock.observe.batch_life import BatchLife, StepKind

WIDTH, HEIGHT = 720, 120
SHOWN = 60
_GAP = 2.0
_CUT_ABOVE = 3
"""Columns may be so many times as high as the middle one."""
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

    @property
    def path(self) -> str:
        """The rectangle as a part of an SVG path."""
        return f"M{self.x:g} {self.y:g}h{self.width:g}v{self.height:g}h-{self.width:g}z"


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One batch, and where its column stands."""

    life: BatchLife
    x: float
    width: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Columns, the oldest batch on the left. `top` is the value at the upper edge; `kinds` are the steps that occur.

    `shapes`: one SVG path for each class of the style sheet: as elements of their own the boxes would make a page too large.
    `cut`: whether a column is higher than `top`, as that of a first batch: the others would be too low to compare.
    """

    columns: tuple[Column, ...]
    shapes: Mapping[str, str]
    top: float
    kinds: tuple[StepKind, ...] = ()
    cut: bool = False


def rate_chart(newest_first: Sequence[BatchLife]) -> Chart:
    """Return a column per batch, as high as its rows per second."""
    columns = _columns(newest_first)
    rates = [column.life.rows_per_s or 0.0 for column in columns]
    top = _top(rates)
    boxes = [_box(column, 0.0, rate, top) for column, rate in zip(columns, rates, strict=True)]
    return Chart(columns=columns, shapes=_shapes(boxes), top=top, cut=max(rates, default=0.0) > top)


def step_chart(newest_first: Sequence[BatchLife]) -> Chart:
    """Return a column per batch, as high as it took, of its steps one above another."""
    columns = _columns(newest_first)
    spent = [_spent(column.life) for column in columns]
    sums = [sum(each.values()) for each in spent]
    top = _top(sums)
    boxes = []
    for column, steps in zip(columns, spent, strict=True):
        below = 0.0
        for kind, duration_ms in steps.items():
            boxes.append(_box(column, below, duration_ms, top, kind=STEP_CLASSES[kind]))
            below += duration_ms
    kinds = tuple(kind for kind in StepKind if any(kind in each for each in spent))
    return Chart(columns=columns, shapes=_shapes(boxes), top=top, kinds=kinds, cut=max(sums, default=0.0) > top)


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


def _columns(newest_first: Iterable[BatchLife]) -> tuple[Column, ...]:
    """Return the columns. Few of them stay narrow, at the right edge, where the newest is."""
    lives = _shown(newest_first)
    each = WIDTH / max(len(lives), SHOWN // 2)
    begin, width = WIDTH - each * len(lives), round(each - _GAP, 1)
    return tuple(Column(life=life, x=round(begin + number * each, 1), width=width) for number, life in enumerate(lives))


def _box(column: Column, below: float, value: float, top: float, *, kind: str = "bar") -> Box:
    scale = HEIGHT / top if top else 0.0
    height = value * scale
    y = round(HEIGHT - below * scale - height, 1)
    return Box(x=column.x, y=y, width=column.width, height=round(height, 1), kind=kind)


def _shapes(boxes: Iterable[Box]) -> Mapping[str, str]:
    shapes = dict[str, str]()
    for box in boxes:
        if box.height:
            shapes[box.kind] = shapes.get(box.kind, "") + box.path
    return shapes


def _top(values: Sequence[float]) -> float:
    """Return a round value for the upper edge: above all values, unless a few are far higher than the others."""
    highest = max(values, default=0.0)
    return _round_up(min(highest, _CUT_ABOVE * median(values)) or highest) if highest else 0.0


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
