"""How the acts of the demo tell their story: headings, tables and what the reader saw."""

from collections.abc import Mapping

from commands import console
from proof import Place
from reader import Reader
from rich.box import SIMPLE_HEAD
from rich.table import Table


def result(places: list[Place], before: Mapping[str, int]) -> Table:
    """One line a place. `before`: the rows that readers saw when the driver was killed."""
    table = plain_table("rows", "when killed", "recovered", "expected", "missing", "doubled", "files")
    for place in places:
        numbers = (before[place.name], place.found, place.expected, place.missing, place.doubled, place.files)
        table.add_row(place.name, *(f"{number:,}" for number in numbers), style=None if place.exact else "red")
    return table


def plain_table(first: str, *others: str) -> Table:
    """A table with names on the left and numbers to the right of them."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column(first, no_wrap=True)
    for column in others:
        table.add_column(column, justify="right", no_wrap=True)
    return table


def proof_of(reader: Reader) -> str:
    """What the reader saw meanwhile."""
    return (
        f"Meanwhile a reader listed the accounts {reader.looks:,} times and read each of {len(reader.seen):,} files when it saw\n"
        f"it first: {len(reader.torn)} unreadable, {len(reader.vanished)} uncommitted (seen, and gone again)."
    )


def heading(text: str) -> None:
    """A step of the story."""
    console.print(f"\n[bold cyan]== {text}[/]")


def fail(text: str) -> int:
    """Say why the demo ends here."""
    console.print(f"\n[bold red]{text}[/]")
    return 1
