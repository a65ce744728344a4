"""How to install what an extra of Penstock needs."""

import re
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires

_PART = re.compile(r"""^\s*(?P<needed>[^;]+?)\s*;.*\bextra\s*==\s*['"](?P<extra>[^'"]+)['"]""")
_OWN = re.compile(r"penstock\[(?P<extras>[^\]]+)\]")


def install_command(extra: str, *, package: str | None = None) -> str:
    """Return the command that installs the packages of `extra`, in the versions that Penstock was tested with.

    It names them and not Penstock: so it works on every machine, whether Penstock came from a package index, a wheel or a clone.
    `package`: what to install if there is no such extra, as for sinks that need none.
    """
    try:
        requirements = requires("penstock") or []
    except PackageNotFoundError:  # its code was sent to this executor without being installed
        return f"pip install 'penstock[{extra}]', from Penstock's wheel"
    return f"pip install {' '.join(map(repr, sorted(set(_packages(extra, requirements))) or [package or extra]))}"


def _packages(extra: str, requirements: list[str]) -> Iterator[str]:
    for part in filter(None, map(_PART.match, requirements)):
        if part["extra"] != extra:
            continue
        own = _OWN.fullmatch(part["needed"])
        if own is None:
            yield part["needed"]
        else:
            for other in own["extras"].split(","):
                yield from _packages(other, requirements)
