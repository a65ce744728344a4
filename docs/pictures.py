"""Writes docs/pictures/*.svg from the texts below: the steps of a batch, and what a kill means. Run by `make docs`."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parent / "pictures"


@dataclass(frozen=True)
class Kill:
    """A kill below a step, the step that comes next then, and what that means; in the first or a later row of words."""

    below: int
    next_step: int
    means: tuple[str, str]
    label: str = "killed here"
    row: int = 0


@dataclass(frozen=True)
class Picture:
    """Steps from left to right, each with a remark; those of `ours` are Penstock's. Before `decided` nothing counts."""

    title: str
    description: str
    steps: Sequence[tuple[str, str]]
    ours: Sequence[int]
    kills: Sequence[Kill]
    decided: int | None = None


PICTURES: Final = {
    "batch": Picture(
        title="The life of a batch",
        description="Spark logs the offsets of batch N. Penstock stages its rows where no reader sees them, appends one decision "
        "to the ledger, and publishes in every sink. Then Spark logs commits N. Killed before the decision, nothing was "
        "delivered and Spark runs the batch again. Killed after it, the next start publishes what was decided.",
        steps=[
            ("offsets/N", "Spark plans"),
            ("stage", "invisible, all sinks"),
            ("decide", "one append"),
            ("publish", "every sink"),
            ("commits/N", "Spark goes on"),
        ],
        ours=(1, 2, 3),
        kills=[
            Kill(1, 0, ("nothing was delivered:", "Spark runs batch N again")),
            Kill(3, 3, ("the next start publishes what was", "decided; a replay writes nothing more")),
        ],
        decided=2,
    ),
    "foreach_batch": Picture(
        title="A batch of a hand-written foreachBatch",
        description="Spark logs the offsets of batch N. The function writes to the lake, then to the warehouse. Then Spark logs "
        "commits N. Killed between the two writes or before commits N, Spark runs the whole batch again, and rows that were "
        "written are written twice.",
        steps=[
            ("offsets/N", "Spark plans"),
            ("write", "into the lake"),
            ("write", "into the warehouse"),
            ("commits/N", "Spark goes on"),
        ],
        ours=(),
        kills=[
            Kill(1, 0, ("Spark runs batch N again:", "in the lake twice")),
            Kill(2, 0, ("Spark runs batch N again:", "in both twice"), row=1),
        ],
    ),
    "two_logs": Picture(
        title="The two logs of Spark's checkpoint, for batch 7",
        description="Spark writes offsets/7, which says what batch 7 reads, and the log of a file source. Then the batch runs: "
        "the sink writes, and the state after the batch is version 8. Then Spark writes commits/7. Killed before commits/7, the "
        "batch was planned and runs again with the same input. Killed after it, batch 8 is next.",
        steps=[
            ("offsets/7", "what to read"),
            ("sources/0/7", "which files"),
            ("the sink writes", "batch 7 runs"),
            ("state/0/*/8", "what is counted"),
            ("commits/7", "batch 7 is over"),
        ],
        ours=(),
        kills=[
            Kill(3, 2, ("batch 7 is planned and not over:", "it runs again, with the same input")),
            Kill(4, 4, ("batch 8 is next:", "nothing is repeated")),
        ],
    ),
    "two_drivers": Picture(
        title="Two drivers of one pipeline",
        description="Driver A opens generation 1 of the ledger and decides batch 0 at position 2. Driver B starts and appends "
        "the opening of generation 2 at position 3. When A wakes up and appends batch 1 at position 3, the position is taken: "
        "A ends with exit code 4, and B decides batch 1.",
        steps=[
            ("1: opened g1", "driver A"),
            ("2: batch 0", "driver A"),
            ("3: opened g2", "driver B starts"),
            ("4: batch 1", "driver B"),
        ],
        ours=(0, 1, 2, 3),
        kills=[Kill(1, 2, ("driver A appends at 3, finds it taken,", "and ends with exit code 4"), label="A wakes up")],
    ),
}
_WIDTH, _STEP, _TOP, _HEIGHT = 130, 180, 70, 60
_STYLE: Final = """  <style>
    .box { fill: #eef3f8; stroke: #5b7083; } .ours { fill: #dcebdc; stroke: #3d7a46; } .point { fill: #b3261e; }
    text { fill: #1c2730; } .small { font-size: 12px; } .line { stroke: #5b7083; stroke-width: 1.5; fill: none; }
    .before { stroke: #b3261e; stroke-width: 1.5; fill: none; } .after { stroke: #3d7a46; stroke-width: 1.5; fill: none; }
    @media (prefers-color-scheme: dark) {
      .box { fill: #26323c; stroke: #8ba3b8; } .ours { fill: #23402a; stroke: #7cc08a; } text { fill: #e6edf3; }
      .line { stroke: #8ba3b8; } .before { stroke: #ff8a80; } .after { stroke: #7cc08a; } .point { fill: #ff8a80; }
    }
  </style>"""


def main() -> None:
    """Write every picture."""
    for name, picture in PICTURES.items():
        (FOLDER / f"{name}.svg").write_text(svg(picture), encoding="utf-8")


def svg(picture: Picture) -> str:
    """Return the picture as SVG, readable on a light and on a dark page."""
    width = 20 + _STEP * (len(picture.steps) - 1) + _WIDTH
    height = _row(max(kill.row for kill in picture.kills) + 1)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-labelledby="title text"',
        '  font-family="system-ui, sans-serif" font-size="14">',
        f'  <title id="title">{picture.title}</title>',
        f'  <desc id="text">{picture.description}</desc>',
        _STYLE,
        '  <g text-anchor="middle">',
        *_boxes(picture, height),
        *(line for kill in picture.kills for line in _kill(kill, _row(kill.row))),
        "  </g>",
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _row(number: int) -> int:
    return 174 + 78 * number


def _middle(step: int) -> int:
    return 10 + _STEP * step + _WIDTH // 2


def _boxes(picture: Picture, height: int) -> Iterator[str]:
    for number, (title, remark) in enumerate(picture.steps):
        left, middle = 10 + _STEP * number, _middle(number)
        kind = "ours" if number in picture.ours else "box"
        yield f'    <rect class="{kind}" x="{left}" y="{_TOP}" width="{_WIDTH}" height="{_HEIGHT}" rx="6"/>'
        yield f'    <text x="{middle}" y="96">{title}</text><text x="{middle}" y="116" class="small">{remark}</text>'
        if number:
            yield f'    <path class="line" d="M{left - 50} 100h44m-6-4 6 4-6 4"/>'
    if picture.decided is not None:
        middle = _middle(picture.decided)
        yield f'    <path class="line" stroke-dasharray="4 4" d="M{middle} 20v44M{middle} 136V{height - 4}"/>'
        yield f'    <text x="{middle}" y="14" class="small">the decision</text>'


def _kill(kill: Kill, y: int) -> Iterator[str]:
    """A dot below a step, an arrow up to the step that comes next, and the words below."""
    at, to = _middle(kill.below), _middle(kill.next_step)
    kind, way = ("after", f"M{at} {y}h48") if to == at else ("before", f"M{at} {y}H{to}")
    text = (at + to) // 2
    yield f'    <circle class="point" cx="{at}" cy="{y}" r="5"/>'
    yield f'    <text x="{at}" y="{y - 12}" class="small">{kill.label}</text>'
    yield f'    <path class="{kind}" d="{way}V136m-4 6 4-6 4 6"/>'
    for line, words in enumerate(kill.means):
        yield f'    <text x="{text}" y="{y + 22 + 16 * line}" class="small">{words}</text>'


if __name__ == "__main__":
    main()
