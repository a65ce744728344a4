"""All fault points of the product, and the refusal to run with an armed fault that could never fire."""

import importlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import penstock
from penstock.core.faults import VARIABLE, armed, points
from penstock.errors import Usage

_WITHOUT_POINTS = frozenset({"cli", "testing"})


def import_all() -> Sequence[str]:
    """Import every module of the product, so that each declares its points. Return those whose packages are not installed."""
    missing = []
    for name in _modules():
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            if (error.name or "").startswith("penstock"):
                raise
            missing.append(name)
    return missing


def require_known() -> None:
    """Raise Usage if an armed fault could never fire: its point does not exist, or does not have that kind.

    Free where nothing is armed. Call it after the modules of user-written sinks are imported: they may declare points, too.
    """
    declared = {point.name: point for point in points()}
    if any(fault.point not in declared for fault in armed()):
        import_all()
        declared = {point.name: point for point in points()}
    for fault in armed():
        point = declared.get(fault.point)
        if point is None:
            raise Usage(
                f"{VARIABLE} names the point {fault.point!r}, expected one of {', '.join(declared)}.",
                remedy="Correct or unset the variable; `penstock crashtest --list` explains every point.",
            )
        if fault.kind not in point.kinds:
            kinds = ", ".join(kind.value for kind in point.kinds)
            raise Usage(
                f"{VARIABLE} arms {point.name} with {fault.kind.value}, expected one of {kinds}.",
                remedy="Correct or unset the variable; `penstock crashtest --list` shows what each point can do.",
            )


def _modules() -> Iterator[str]:
    for root in (Path(place) for place in penstock.__path__):
        for file in sorted(root.rglob("*.py")):
            parts = file.relative_to(root).with_suffix("").parts
            name = ".".join(("penstock", *(parts[:-1] if parts[-1] == "__init__" else parts)))
            if parts[-1] != "__main__" and parts[0] not in _WITHOUT_POINTS:
                yield name
