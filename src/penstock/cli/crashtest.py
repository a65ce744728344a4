"""`penstock crashtest --list`: lists every named fault point."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from penstock.cli.opening import Json
from penstock.cli.output import show
from penstock.cli.table import table
from penstock.errors import Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedPoint:
    """One fault point in the list."""

    name: str
    meaning: str
    kinds: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultList:
    """All fault points, and the modules that were not searched because a package is not installed."""

    points: tuple[ListedPoint, ...]
    not_imported: tuple[str, ...]


def crashtest(
    *,
    list_points: Annotated[bool, typer.Option("--list", help="List the fault points that PENSTOCK_FAULTS can arm.")] = False,
    as_json: Json = False,
) -> None:
    """List the steps at which the product can be killed, failed, stalled or torn for a test."""
    if not list_points:
        raise Usage("crashtest without --list is not supported by this version.", remedy="Use crashtest --list.")
    show(fault_list(), as_json=as_json, text=_text)


def fault_list() -> FaultList:
    """Import every module of the product, so that each declares its fault points, and list these."""
    from penstock.core.faults import points
    from penstock.run.fault_points import import_all

    not_imported = tuple(import_all())
    listed = tuple(
        ListedPoint(name=point.name, meaning=point.meaning, kinds=tuple(kind.value for kind in point.kinds)) for point in points()
    )
    return FaultList(points=listed, not_imported=not_imported)


def _text(found: FaultList) -> RenderableType:
    rows: Sequence[Sequence[object]] = [(point.name, point.meaning, ", ".join(point.kinds)) for point in found.points]
    missing = (
        [Text(f"Not looked into, since a package is missing: {', '.join(found.not_imported)}")] if found.not_imported else []
    )
    usage = Text('\nArm them with PENSTOCK_FAULTS="point=kind[@occurrence][,…]"; stall takes seconds: stall:5.', "dim")
    return Group(table(("point", "meaning", "kinds"), rows), usage, *missing)
