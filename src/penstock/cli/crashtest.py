"""`penstock crashtest --list`: every named fault point."""

import importlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import penstock
from penstock.cli.options import Json
from penstock.cli.show import show
from penstock.errors import Usage

if TYPE_CHECKING:
    from rich.console import RenderableType

_WITHOUT_POINTS = ("penstock.cli", "penstock.testing")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedPoint:
    """One fault point as it is listed."""

    name: str
    meaning: str
    kinds: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultList:
    """Every point, and the modules that could not be looked into because a package is not installed."""

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
    """Import every module of the product, so that each has declared its points, and list them."""
    from penstock.faults import points

    not_imported = tuple(name for name in _modules() if not _imported(name))
    listed = tuple(
        ListedPoint(name=point.name, meaning=point.meaning, kinds=tuple(kind.value for kind in point.kinds)) for point in points()
    )
    return FaultList(points=listed, not_imported=not_imported)


def _modules() -> Iterator[str]:
    for root in (Path(place) for place in penstock.__path__):
        for file in sorted(root.rglob("*.py")):
            parts = file.relative_to(root).with_suffix("").parts
            name = ".".join(("penstock", *(parts[:-1] if parts[-1] == "__init__" else parts)))
            if parts[-1] != "__main__" and not name.startswith(_WITHOUT_POINTS):
                yield name


def _imported(name: str) -> bool:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as missing:
        if (missing.name or "").startswith("penstock"):
            raise
        return False
    return True


def _text(found: FaultList) -> "RenderableType":
    from rich.console import Group
    from rich.text import Text

    from penstock.cli.table import table

    rows: Sequence[Sequence[object]] = [(point.name, point.meaning, ", ".join(point.kinds)) for point in found.points]
    missing = (
        [Text(f"Not looked into, since a package is missing: {', '.join(found.not_imported)}")] if found.not_imported else []
    )
    usage = Text('\nArm them with PENSTOCK_FAULTS="point=kind[@occurrence][,…]"; stall takes seconds: stall:5.', "dim")
    return Group(table(("point", "meaning", "kinds"), rows), usage, *missing)


def add_to(app: typer.Typer) -> None:
    """Add the verb."""
    app.command(rich_help_panel="Test")(crashtest)
