"""SQL statements in parts, which are rendered in the parameter style of any driver."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final, NamedTuple

STYLES: Final[Mapping[str, Callable[[int], str]]] = {
    "qmark": lambda _: "?",
    "numeric": lambda at: f":{at}",
    "numeric_dollar": lambda at: f"${at}",
    "named": lambda at: f":p{at}",
    "format": lambda _: "%s",
    "pyformat": lambda at: f"%(p{at})s",
}
"""How each style writes the parameter at a place, counted from 1. `numeric_dollar` is ADBC's for PostgreSQL."""

_NAMED = re.compile(r":([a-z_]+)")


class Value(NamedTuple):
    """A place in a statement where a value is bound by name."""

    name: str


@dataclass(frozen=True, slots=True)
class Sql:
    """One statement as a sequence of texts and values."""

    parts: tuple[str | Value, ...]

    @property
    def plain(self) -> str:
        """The text of a statement without values."""
        return "".join(part for part in self.parts if isinstance(part, str))

    def rendered(self, style: str) -> tuple[str, Sequence[str]]:
        """Return the text in that parameter style, and the names of the values in their order."""
        return _rendered(self, style)


def statement(text: str) -> Sql:
    """Parse a statement of Penstock's own, in which `:name` stands for a value."""
    pieces = _NAMED.split(text)
    return Sql(tuple(Value(piece) if at % 2 else piece for at, piece in enumerate(pieces)))


def joined(separator: str, parts: Sequence[Sql]) -> Sql:
    """Join statements by `separator`."""
    together: list[str | Value] = []
    for at, part in enumerate(parts):
        together += [*([separator] if at else []), *part.parts]
    return Sql(tuple(together))


@cache
def _rendered(sql: Sql, style: str) -> tuple[str, Sequence[str]]:
    texts, names = [], []
    for part in sql.parts:
        if isinstance(part, Value):
            names.append(part.name)
            texts.append(STYLES[style](len(names)))
        else:
            texts.append(part.replace("%", "%%") if style in {"format", "pyformat"} else part)
    return "".join(texts), names
