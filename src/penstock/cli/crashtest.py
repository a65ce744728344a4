"""`penstock crashtest --list`: lists every named fault point."""

from collections.abc import Sequence
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from penstock.cli.opening import Json
from penstock.cli.output import show
from penstock.cli.table import table
from penstock.core.faults import points
from penstock.errors import Usage


def crashtest(
    *,
    list_points: Annotated[bool, typer.Option("--list", help="List the fault points that PENSTOCK_FAULTS can arm.")] = False,
    as_json: Json = False,
) -> None:
    """List the steps at which the product can be killed, failed, stalled or torn for a test."""
    if not list_points:
        raise Usage("crashtest without --list is not supported by this version.", remedy="Use crashtest --list.")
    from penstock.run.fault_points import import_all

    show(import_all(), as_json=as_json, text=_text, fields=_fields)


def _fields(missing: Sequence[str]) -> dict[str, object]:
    listed = [{"name": point.name, "meaning": point.meaning, "kinds": point.kinds} for point in points()]
    return {"points": listed, "not_imported": missing}


def _text(missing: Sequence[str]) -> RenderableType:
    rows = [(point.name, point.meaning, ", ".join(kind.value for kind in point.kinds)) for point in points()]
    usage = Text('\nArm them with PENSTOCK_FAULTS="point=kind[@occurrence][,…]"; stall takes seconds: stall:5.', "dim")
    unseen = [Text(f"Not looked into, since a package is missing: {', '.join(missing)}")] if missing else []
    return Group(table(("point", "meaning", "kinds"), rows), usage, *unseen)
