"""Plain tables for people: a heading, columns, numbers to the right."""

from collections.abc import Iterable, Sequence

from rich import box
from rich.table import Table
from rich.text import Text

_NUMBERS = frozenset(
    {"rows", "files", "size", "batch", "batches", "position", "generation", "expected", "found", "decided", "stage", "publish"}
    | {"requests", "in decision", "staged"}
)


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, title: str | None = None) -> Table:
    """A table of `rows`; cells are shown as they are, never read as markup."""
    made = Table(*(), box=box.SIMPLE_HEAD, title=title, title_justify="left", title_style="bold", pad_edge=False, show_edge=False)
    for column in columns:
        made.add_column(column, justify="right" if column in _NUMBERS else "left", overflow="fold")
    for row in rows:
        made.add_row(*(cell if isinstance(cell, Text) else Text("" if cell is None else str(cell)) for cell in row))
    return made


def facts(pairs: Iterable[tuple[str, object]]) -> Table:
    """Names and values below each other; pairs without a value are left out."""
    made = Table.grid(padding=(0, 2))
    made.add_column(style="dim")
    made.add_column(overflow="fold")
    for name, value in pairs:
        if value is not None:
            made.add_row(name, value if isinstance(value, Text) else Text(str(value)))
    return made
