"""Validation of the options of an account's store in the pipeline file."""

import difflib
import re
from collections.abc import Mapping

from penstock.blob.url import BlobUrl
from penstock.errors import Usage
from penstock.support.secret import scheme_only

_NUMBERS: Mapping[str, type[int] | type[float]] = {"attempts": int, "timeout_s": float}
_ADDRESS = re.compile(r"https?://([^\s/@:?#]+|\[[0-9a-fA-F:.]+\])(:\d+)?(/[^\s?#@]*)?")
_ADDRESSES = frozenset({"endpoint", "webhdfs"})


def require_known(options: Mapping[str, str], known: tuple[str, ...], *, place: BlobUrl) -> None:
    """Raise Usage for an unknown option, and for one that must be a number or an address and is not."""
    unknown = next((name for name in options if name not in known), None)
    if unknown is not None:
        close = difflib.get_close_matches(unknown, known, n=1)
        meant = f"Did you mean {close[0]}? " if close else ""
        raise Usage(f"{place} has no option {unknown!r}.", remedy=f"{meant}It has {', '.join(known)}.")
    for name in _NUMBERS.keys() & options.keys():
        kind, given = _NUMBERS[name], options[name]
        try:
            fine = 0 < kind(given) < float("inf")
        except ValueError:
            fine = False
        if not fine:
            what = "a whole number above 0" if kind is int else "a number above 0"
            raise Usage(f"The option {name!r} of {place} is {given!r}, expected {what}.", remedy="Correct it.")
    for name in _ADDRESSES & options.keys():
        if not all(_ADDRESS.fullmatch(address.strip()) for address in options[name].split(",")):
            raise Usage(
                f"The option {name!r} of {place} is {scheme_only(options[name])}, expected a URL without user and password.",
                remedy="Write http://HOST:PORT or https://HOST.",
            )
