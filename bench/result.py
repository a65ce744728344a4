"""What a part measured: tables of cases with one figure for each writer and round, as values and as JSON."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

PENSTOCK = "Penstock"

Comparison = Literal["times", "tax", "added", "alone"]
"""How a peer's figure is set against ours: peer ÷ ours, ours ÷ peer - 1 in percent, ours - peer, or not at all."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One input or setting: for each writer its figures, one per round. `amount` rows or records make one figure."""

    name: str
    figures: Mapping[str, Sequence[float]]
    amount: int = 0


@dataclass(frozen=True, kw_only=True)
class Table:
    """Cases that are compared in the same way. Less is better. `ours` are the writers that are Penstock's."""

    name: str
    title: str
    unit: str
    cases: tuple[Case, ...]
    ours: tuple[str, ...] = (PENSTOCK,)
    comparison: Comparison = "times"
    amounts: str = ""
    note: str = ""

    def peers(self, case: Case) -> list[str]:
        """The writers of `case` that are not ours."""
        return [name for name in case.figures if name not in self.ours]


@dataclass(frozen=True, kw_only=True)
class Run:
    """One measurement of a part: its time in UTC, how long it took, what it was measured with."""

    began: str
    minutes: float
    rounds: int
    versions: Mapping[str, str] = field(default_factory=dict)
    tables: tuple[Table, ...] = ()


def to_json(runs: Sequence[Run]) -> str:
    """Indented, with the figures of a writer in one line, so that a difference between two runs can be read."""
    text = json.dumps([asdict(run) for run in runs], indent=1, ensure_ascii=False)
    return re.sub(r"\[([-\d.,e\s]+)\]", lambda found: f"[{' '.join(found[1].split())}]", text) + "\n"


def from_json(text: str) -> list[Run]:
    """The inverse of `to_json`."""
    return [_run(each) for each in json.loads(text)]


def _run(value: Mapping[str, Any]) -> Run:
    return Run(**{**value, "tables": tuple(_table(each) for each in value["tables"])})


def _table(value: Mapping[str, Any]) -> Table:
    cases = tuple(Case(**each) for each in value["cases"])
    return Table(**{**value, "ours": tuple(value["ours"]), "cases": cases})
