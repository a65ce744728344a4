"""Renders plain tables for people: a heading, columns, numbers right-aligned."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from penstock.support.printable import printable

_NUMBERS = frozenset(
    {"rows", "files", "size", "batch", "batches", "position", "generation", "expected", "found", "decided", "stage", "publish"}
    | {"requests", "in decision", "staged", "pieces", "records behind", "rows/s", "after", "took"}
)

_ANY_WIDTH = 10_000


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    """Return a table of `rows`. Cells are shown as they are, never read as markup."""
    made = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    for column in columns:
        made.add_column(column, justify="right" if column in _NUMBERS else "left", overflow="fold")
    for row in rows:
        made.add_row(*map(_cell, row))
    return made


def _cell(value: object) -> Text:
    if isinstance(value, Text):
        return value
    return Text("" if value is None else printable(str(value)))


@dataclass(frozen=True, slots=True)
class Fitting:
    """A table that leaves out columns if the terminal is too narrow, in the order of `dispensable`, and names them below."""

    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    dispensable: Sequence[str]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        without = range(len(self.dispensable) + 1)
        made = []
        for number in without:
            shown = [index for index, column in enumerate(self.columns) if column not in self.dispensable[:number]]
            made.append(table([self.columns[index] for index in shown], [[row[index] for index in shown] for row in self.rows]))
        widths = [console.measure(each, options=options.update(max_width=_ANY_WIDTH)).maximum for each in made]
        left_out = next((number for number in without if widths[number] <= options.max_width), len(self.dispensable))
        yield made[left_out]
        if left_out:
            yield Text(f"Not shown, for want of width: {', '.join(self.dispensable[:left_out])}.", "dim")


@dataclass(frozen=True, slots=True)
class OneLine:
    """A text on one line: the first of `variants`, which say less and less, that fits the terminal; else the last one, cut."""

    variants: Sequence[Text]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        fitting = (text for text in self.variants if text.cell_len <= options.max_width)
        chosen = next(fitting, self.variants[-1]).copy()
        chosen.truncate(options.max_width, overflow="ellipsis")
        yield chosen


def lines(marked: Iterable[tuple[Text, Text]]) -> Table:
    """Return a list: each entry with its mark or number before it, folded behind that."""
    made = Table.grid(padding=(0, 2, 0, 0))
    made.add_column(justify="right", no_wrap=True)
    made.add_column(overflow="fold")
    for mark, text in marked:
        made.add_row(mark, text)
    return made


def facts(pairs: Iterable[tuple[str, object]]) -> Table:
    """Return names and values as two columns, without pairs whose value is None."""
    made = Table.grid(padding=(0, 2))
    made.add_column(style="dim")
    made.add_column(overflow="fold")
    for name, value in pairs:
        if value is not None:
            made.add_row(name, _cell(value))
    return made
