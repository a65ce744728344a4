"""Figures that documents claim, and what the slower of the kept runs shows for them.

A figure in README or docs is followed by the comparison that it comes from, in a comment that readers do not see:
`1.03x<!-- bench: passes / passes / 8 accounts / Penstock / partitionBy into one root -->`.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass

from bench.figures import Row, rows, tables_named
from bench.result import PENSTOCK, Comparison, Run

FIGURE = re.compile(r"(?<![\w.])[-+]?\d+(?:\.\d+)?(?:x\b| %)")
_CLAIM = re.compile(r"(?P<value>[-+]?\d+(?:\.\d+)?)(?:x| %| s| ms)<!-- bench: (?P<key>[^>]+?) -->")


@dataclass(frozen=True)
class Key:
    """One comparison: the part, its table, the case, the peer (none where a figure stands alone) and our writer."""

    part: str
    table: str
    case: str
    peer: str | None
    way: str = PENSTOCK

    def __str__(self) -> str:
        part, table, case, peer, way = astuple(self)
        return " / ".join((part, table, case, way, peer or "alone"))


@dataclass(frozen=True)
class Reading:
    """What the kept runs show for a key."""

    comparison: Comparison
    unit: str
    row: Row

    @property
    def slower(self) -> float:
        """The figure of the run in which Penstock did worse."""
        return self.row.slower.compared.median


def parse_key(text: str) -> Key:
    """The inverse of `str`. Raises ValueError unless there are five names."""
    part, table, case, way, peer = text.split(" / ")
    return Key(part, table, case, None if peer == "alone" else peer, way)


def read(kept: Mapping[str, Sequence[Run]], key: Key) -> Reading | None:
    """None where no run of that part is kept; KeyError where the runs have no such comparison."""
    if not kept.get(key.part):
        return None
    tables = tables_named(kept[key.part], key.table)
    for row in rows(tables) if tables else ():
        if (row.case.name, row.way, row.peer) == (key.case, key.way, key.peer):
            return Reading(tables[-1].comparison, tables[-1].unit, row)
    raise KeyError(f"no comparison is named: {key}")


def too_good(text: str, kept: Mapping[str, Sequence[Run]]) -> Iterator[str]:
    """Every claim of `text` that the slower run does not show, with what it shows."""
    for claim in _CLAIM.finditer(text):
        found = read(kept, parse_key(claim["key"]))
        if found is None:
            yield f"{claim[0]}: that part was not measured"
            continue
        claimed, shown = float(claim["value"]), round(found.slower, 2 if found.comparison == "times" else 1)
        if claimed > shown if found.comparison == "times" else claimed < shown:
            yield f"{claim[0]}: the slower run shows {found.slower:.3f}"


def unproven(text: str) -> list[str]:
    """Figures of a comparison that name none: every `1.3x` outside tables of code that no claim covers."""
    proven = {claim.start("value") for claim in _CLAIM.finditer(text)}
    return [found[0] for found in FIGURE.finditer(text) if found[0].endswith("x") and found.start() not in proven]
