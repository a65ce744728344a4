"""The trial of a table: rows of extreme values are written, read back and rolled back, to find out what the database keeps.

Nothing else shows it: a driver names no types that all databases share. If an ordinary value does not come back unchanged, the
table is refused. If NaN, an infinity, NUL, NULL or a very long text does not, the tasks refuse rows that have it in that column.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import Any, TypeAlias

import pyarrow as pa

from penstock.errors import Refused
from penstock.sink.dbapi.driver import Session
from penstock.sink.dbapi.statements import TableStatements
from penstock.sink.dbapi.trial_rows import ROWS, SPECIALS, Attempts, Row, edges_of, special_of, widest_of

_BYTES_AT_ONCE = 2_000_000
"""Bytes of the longest values in one row: servers end a connection that sends too much, MySQL 5.7 more than 4 MiB."""

UNCONSTRAINED = (
    "Drop the constraint that is named, or let the column that must have a value be NULL or have a default; where the database "
    "cannot, create the table again without it, and copy the rows into it"
)
"""The remedy where no column's type is at fault."""

Named: TypeAlias = tuple[str, Any]
"""A column's name, and a value for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialResult:
    """What a table keeps. `required`: columns that take no NULL. `lacking` and `longest`: see `RowValidator`."""

    required: tuple[str, ...] = ()
    lacking: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    longest: Mapping[str, int] = field(default_factory=dict)


class Trial:
    """A trial on an open session, between two transactions. `longest`: the most characters or bytes that are tried.

    Each attempt reads the whole table, so all columns are tried at once, and one by one only where that fails.
    """

    def __init__(self, session: Session, statements: TableStatements, schema: "pa.Schema", *, longest: int) -> None:
        self._attempts = Attempts(session, statements, schema)
        self._statements, self._schema, self._longest = statements, schema, longest
        self._values: Mapping[str, Sequence[Any]] = {column.name: edges_of(column.type) for column in schema}

    def run(self) -> TrialResult:
        """Try the table. Raise Refused if it does not keep ordinary values, or does not undo what is rolled back."""
        self.require_undone()
        self._attempts.begin()
        self._require_ordinary()
        kept = TrialResult(required=self._required(), lacking=self._lacking(), longest=self._longest_of_columns())
        self._attempts.end()
        return kept

    def require_undone(self) -> None:
        """Raise Refused if the table keeps what is rolled back: since its trial, it may be altered or another one."""
        self._attempts.require_undone(self._ordinary())

    def _ordinary(self) -> Sequence[Row]:
        return [{name: values[at % len(values)] for name, values in self._values.items()} for at in range(ROWS)]

    def _with(self, name: str, value: Any) -> Row:
        """Return a row of ordinary values, except for this one."""
        return {**self._ordinary()[0], name: value}

    def _require_ordinary(self) -> None:
        if self._attempts.come_back(self._ordinary()):
            return
        self._values = self._attempts.not_there(self._values)  # the table keeps what it has, and a key cannot repeat
        if not self._attempts.come_back(self._ordinary()):
            for row in self._ordinary():
                self._require(row)

    def _require(self, row: Row) -> None:
        problem = self._attempts.problem_with(row)
        if problem is None:
            return
        guilty = () if self._attempts.problem_with(self._ordinary()[0]) else row.items()
        name = next((name for name, value in guilty if not self._keeps(name, value)), None)
        row_text = (
            f"column {name!r} ({self._schema.field(name).type}), value {row[name]!r:.60}" if name else "a row of plain values"
        )
        raise Refused(
            f"Table {self._statements.table!r} does not give back what is written into it: {row_text}: {problem}.",
            remedy="Declare the column with a type that keeps it (`columns:` of the sink, or your own CREATE TABLE), or cast it "
            "in the transform, to STRING say."
            if name
            else f"{UNCONSTRAINED}, and start again.",
        )

    def _required(self) -> tuple[str, ...]:
        key = self._statements.key
        others = [name for name in self._schema.names if name not in key]
        kept = self._kept([(name, None) for name in others])
        return (*key, *(name for name, fine in zip(others, kept, strict=True) if not fine))

    def _lacking(self) -> Mapping[str, tuple[str, ...]]:
        specials = [(column.name, what) for column in self._schema for what in special_of(column.type)]
        if self._come_back([(name, SPECIALS[what]) for name, what in specials]):
            return {}
        lost = {what: self._lost(what, [name for name, of in specials if of == what]) for what in SPECIALS}
        found = {name: tuple(what for what, names in lost.items() if name in names) for name, _ in specials}
        return {name: whats for name, whats in found.items() if whats}

    def _lost(self, what: str, names: Sequence[str]) -> Sequence[str]:
        kept = self._kept([(name, SPECIALS[what]) for name in names])
        return [name for name, fine in zip(names, kept, strict=True) if not fine]

    def _longest_of_columns(self) -> Mapping[str, int]:
        units = {column.name: unit for column in self._schema if (unit := widest_of(column.type)) is not None}
        names, at_once = list(units), max(1, _BYTES_AT_ONCE // (4 * self._longest))
        found: dict[str, int] = {}
        for stretch in (names[start : start + at_once] for start in range(0, len(names), at_once)):
            kept = self._kept([(name, units[name] * self._longest) for name in stretch])
            for name, fine in zip(stretch, kept, strict=True):
                found[name] = self._longest if fine else self._longest_of(name, units[name])
        return found

    def _longest_of(self, name: str, unit: Any) -> int:
        """Return the greatest length that comes back, found by bisection."""
        fits, too_long = 0, self._longest
        while too_long - fits > 1:
            probe = (fits + too_long) // 2
            if self._keeps(name, unit * probe):
                fits = probe
            else:
                too_long = probe
        return fits

    def _kept(self, values: Sequence[Named]) -> Sequence[bool]:
        """Return which values come back: tried all at once, then without those that cannot be written, then one by one."""
        if self._come_back(values):
            return [True] * len(values)
        taken = [self._attempts.takes(self._with(*named)) for named in values]
        if not all(taken) and self._come_back([*compress(values, taken)]):
            return taken
        return [fine and self._keeps(*named) for fine, named in zip(taken, values, strict=True)]

    def _keeps(self, name: str, value: Any) -> bool:
        return self._attempts.problem_with(self._with(name, value)) is None

    def _come_back(self, values: Sequence[Named]) -> bool:
        """Return whether all values come back, each in an ordinary row. A row takes one for each column, so rows are few."""
        columns = [name for name, _ in values]
        places = [columns[:at].count(name) for at, name in enumerate(columns)]
        rows = [
            {**row, **{name: value for (name, value), place in zip(values, places, strict=True) if place == at}}
            for at, row in zip(range(max(places, default=-1) + 1), self._ordinary(), strict=False)
        ]
        return self._attempts.come_back(rows)
