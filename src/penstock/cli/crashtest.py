"""`penstock crashtest --list`: lists every named fault point.

`penstock.core.faults` is imported late: it refuses a malformed PENSTOCK_FAULTS, which is told as any other wrong usage.
"""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from penstock.cli.opening import Json
from penstock.cli.output import show
from penstock.cli.table import table
from penstock.errors import Usage

if TYPE_CHECKING:
    from penstock.core.faults import FaultPoint


def crashtest(
    *,
    file: Annotated[str | None, typer.Argument(metavar="FILE", hidden=True)] = None,
    list_points: Annotated[bool, typer.Option("--list", help="List the fault points that PENSTOCK_FAULTS can arm.")] = False,
    as_json: Json = False,
) -> None:
    """List the steps at which the product can be killed, failed, stalled or torn for a test."""
    if not list_points:
        raise Usage(
            "crashtest without --list is not supported by this version.",
            remedy="`penstock crashtest --list` names the steps, and "
            f"`PENSTOCK_FAULTS=STEP=kill penstock run {file or 'FILE'}` kills a run at one of them.",
        )
    from penstock.core.faults import points
    from penstock.run.fault_points import import_all

    missing = import_all()
    show(points(), as_json=as_json, text=partial(_text, missing), fields=partial(_fields, missing))


def _fields(missing: Sequence[str], points: "Sequence[FaultPoint]") -> dict[str, object]:
    listed = [{"name": point.name, "meaning": point.meaning, "kinds": point.kinds} for point in points]
    return {"points": listed, "not_imported": missing}


def _text(missing: Sequence[str], points: "Sequence[FaultPoint]") -> RenderableType:
    rows = [(point.name, point.meaning, ", ".join(kind.value for kind in point.kinds)) for point in points]
    usage = Text('\nArm them with PENSTOCK_FAULTS="point=kind[@occurrence][,…]"; stall takes seconds: stall:5.', "dim")
    unseen = [Text(f"Not looked into, since a package is missing: {', '.join(missing)}")] if missing else []
    return Group(table(("point", "meaning", "kinds"), rows), usage, *unseen)
