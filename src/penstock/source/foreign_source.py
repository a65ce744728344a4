"""A source that was opened outside Penstock, as Spark's plan describes it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

_PROVIDERS: Mapping[str, str] = {
    "textsocketsourceprovider": "socket",
    "textsocket": "socket",
    "ratestreamprovider": "rate",
    "ratepermicrobatchprovider": "rate-micro-batch",
    "kafkasourceprovider": "kafka",
    "deltadatasource": "delta",
}
_CLASS_OF_FILES = ("fileformat", "datasourcev2")


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedSource:
    """One source. `format` is what Spark was given: a short name or a class name, `table` for a table. `paths`: of file sources.

    `options` is None where the plan does not show them. They can hold credentials, so they are looked at and never printed.
    """

    format: str
    options: Mapping[str, str] | None = field(repr=False)
    paths: tuple[str, ...] = ()


def short_format(name: str) -> str:
    """Return Spark's short name, in lower case, of a format given by its short name or by the name of its class."""
    kind = name.rpartition(".")[2].lower().rstrip("$")
    for ending in _CLASS_OF_FILES:
        if "." in name and kind.endswith(ending):
            return kind.removesuffix(ending)
    return _PROVIDERS.get(kind, name.lower())
