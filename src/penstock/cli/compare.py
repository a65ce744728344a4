"""`penstock compare`: where two pipelines' contents differ."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from penstock.cli.opening import File, Json, OtherOverrides, Overrides, naming_other_set, pipeline
from penstock.cli.output import hexadecimal, show
from penstock.cli.table import table
from penstock.support import formatting

if TYPE_CHECKING:
    from penstock.core.model import Totals
    from penstock.run.compare import Comparison, Pair

DIFFERENCE = 5
_SHOWN = 20


def compare(
    *,
    file: File,
    other: Annotated[str, typer.Argument(metavar="OTHER", help="The other pipeline file.", show_default=False)],
    from_batch: Annotated[
        int | None,
        typer.Option(
            min=0, metavar="N", help="The first batch to compare. Without it: all that both ledgers have.", show_default=False
        ),
    ] = None,
    sink: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[=OTHER]",
            help="A sink, and its name in the other pipeline; may be repeated. Without it: those of equal names.",
            show_default=False,
        ),
    ] = None,
    rows: Annotated[int, typer.Option(min=0, metavar="N", help="Show up to N rows of each batch that differs (parquet).")] = 0,
    overrides: Overrides = None,
    other_overrides: OtherOverrides = None,
    as_json: Json = False,
) -> None:
    """Where two pipelines' contents differ, batch by batch and in all: by rows and digests of their ledgers, without Spark.

    Only batches that both have decided are compared. Exit code 5 if contents differ.
    """
    with naming_other_set():
        second = pipeline(other, other_overrides)
    found = pipeline(file, overrides).compare(second, from_batch=from_batch, sinks=sink or (), show_rows=rows)
    show(found, as_json=as_json, text=_text)
    if not found.same:
        raise typer.Exit(DIFFERENCE)


def _text(found: "Comparison") -> RenderableType:
    if found.from_batch is None:
        return Text(f"{found.first} and {found.second} have no batch in common.", "yellow")
    span = f"Batches {found.from_batch} to {found.to_batch} of {found.first} and {found.second}."
    rows = [
        (_named(each.sinks), *_cells(each.first), *_cells(each.second), "same" if each.same else "differs")
        for each in found.totals
    ]
    columns = ("sink", "rows", "digest", "rows", "digest", "")
    return Group(Text(span, "bold"), table(columns, rows), *_batches(found))


def _batches(found: "Comparison") -> Iterator[RenderableType]:
    for each in found.totals:
        if each.columns:
            yield Text(f"{_named(each.sinks)}: only one of both has {', '.join(each.columns)}.")
    for one in found.differences[:_SHOWN]:
        counts = f"{formatting.counted(one.first.rows, 'row')} and {formatting.counted(one.second.rows, 'row')}"
        read = "" if one.same_input else "; they read other input"
        yield Text(f"batch {one.batch_id}, {_named(one.sinks)}: {counts}{read}")
        for row in one.rows:
            whose = found.first if row.times > 0 else found.second
            yield Text(f"  only in {whose}: {dict(row.row)}" + ("" if abs(row.times) == 1 else f" ({abs(row.times)} times)"))
    if len(found.differences) > _SHOWN:
        yield Text(f"{len(found.differences) - _SHOWN} more; --json has all of them.")


def _named(sinks: "Pair") -> str:
    return sinks.first if sinks.first == sinks.second else f"{sinks.first}, {sinks.second}"


def _cells(totals: "Totals") -> tuple[str, str]:
    return formatting.count(totals.rows), hexadecimal(totals.digest)
