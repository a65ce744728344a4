"""One result table, as Markdown."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Table:
    """A title, a header, rows of text, and what one must know to read it."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""

    def markdown(self) -> str:
        """The table as Markdown."""
        lines = [f"### {self.title}", "", _line(self.header), _line(["---"] * len(self.header))]
        lines += [_line(row) for row in self.rows]
        return "\n".join([*lines, "", self.note, ""] if self.note else [*lines, ""])


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def median(values: Sequence[float]) -> float:
    """The median."""
    return statistics.median(values)


def ratio(value: float) -> str:
    """A ratio for a table."""
    return f"{value:.2f}x"
