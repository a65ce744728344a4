"""Options of an account's store, as the pipeline file gives them."""

from collections.abc import Mapping

from penstock.bloburl import BlobUrl
from penstock.errors import Usage

_NUMBERS: Mapping[str, type[int] | type[float]] = {"attempts": int, "timeout_s": float}


def require_known(options: Mapping[str, str], known: tuple[str, ...], *, place: BlobUrl) -> None:
    """Raise Usage for an option that the store does not have, and for one that should be a number and is none."""
    unknown = next((name for name in options if name not in known), None)
    if unknown is not None:
        raise Usage(f"A place on {place.kind}:// has no option {unknown!r}.", remedy=f"It has {', '.join(known)}.")
    for name in _NUMBERS.keys() & options.keys():
        _require_number(name, options[name], place=place)


def _require_number(name: str, given: str, *, place: BlobUrl) -> None:
    kind = _NUMBERS[name]
    try:
        fine = 0 < kind(given) < float("inf")
    except ValueError:
        fine = False
    if not fine:
        what = "a whole number above 0" if kind is int else "a number above 0"
        raise Usage(f"The option {name!r} of a place on {place.kind}:// is {given!r}, expected {what}.", remedy="Correct it.")
