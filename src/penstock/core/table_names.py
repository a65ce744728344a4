"""Names of tables that columns of a row determine: `{region}_orders`. Values come from data, so every name is checked."""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from penstock.core.model import AccountName
from penstock.errors import StageFailed
from penstock.spark.column_name import quoted

_COLUMN: Final = re.compile(r"\{([^{}]*)\}")
OWN_PREFIX: Final = "penstock_"
"""How the names of Penstock's own tables begin."""


def is_template(name: str) -> bool:
    """Return whether a table's name has columns of the rows in it."""
    return _COLUMN.search(name) is not None


def without_columns(name: str) -> str:
    """Return the name with a letter in place of every column."""
    return _COLUMN.sub("x", name)


@dataclass(frozen=True, kw_only=True)
class TableNames:
    """Which tables a sink fills by its `template`, the last part of a table's name. Picklable.

    `listed`: the only tables there may be; without it, those that match the regular expression `pattern`. `most`: how many there
    may be. `longest`: how many characters a name may have. `letters`: what a column's value may consist of, as in a regular
    expression's brackets: nothing that ends a name, a quotation or a directory.
    """

    template: str
    listed: tuple[str, ...] = ()
    pattern: str | None = None
    most: int = 100
    longest: int = 63
    letters: str = "A-Za-z0-9_-"

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The columns in the template, in its order."""
        return tuple(dict.fromkeys(_COLUMN.findall(self.template)))

    @cached_property
    def literal(self) -> str:
        """What of the template is no column."""
        return _COLUMN.sub("", self.template)

    @cached_property
    def example(self) -> str:
        """A name of the template's shape."""
        return self.listed[0] if self.listed else without_columns(self.template)

    @cached_property
    def route_sql(self) -> str:
        """The Spark SQL expression of a row's table; NULL where a column is NULL or empty."""
        parts = _COLUMN.split(self.template)
        sql = [
            f"nullif(CAST({quoted(part)} AS STRING), '')" if place % 2 else "'" + part + "'"
            for place, part in enumerate(parts)
            if part
        ]
        return sql[0] if len(sql) == 1 else f"concat({', '.join(sql)})"

    def refusal(self, name: str | None) -> str | None:
        """Return why a row's table may not be filled, as the end of a sentence; None if it may."""
        if name is None:
            return f"has no table: a column of {self.template} is NULL or empty"
        if not self.fits(name):
            return f"names table {shortened(name)}, and a value in {self.template} may have letters, digits{self._signs} only"
        if len(name) > self.longest:
            return f"names table {shortened(name)}, of {len(name)} characters, and {self.longest} are possible"
        return self._not_allowed(name)

    def fits(self, name: str) -> bool:
        """Return whether the template can make this name, allowed or not."""
        return self._shape.fullmatch(name) is not None

    def to_open(self, wanted: Collection[AccountName], opened: Collection[AccountName]) -> Sequence[AccountName]:
        """Return those of `wanted` that are to be opened beside `opened`, in order, of names that differ only in case the first.

        Raises StageFailed if there would be more than `most` tables.
        """
        taken = {name.lower() for name in opened}
        fresh = list[AccountName]()
        for name in sorted(set(wanted) - set(opened)):
            if self.refusal(name) is None and name.lower() not in taken:
                taken.add(name.lower())
                fresh.append(name)
        if len(opened) + len(fresh) > self.most:
            raise StageFailed(
                f"Rows are for {len(fresh)} new tables of {self.template}, {fresh[0]!r} for one. With {len(opened)} that are "
                f"there they would be more than {self.most}.",
                remedy="Nothing of the batch was decided. Narrow `tables.pattern`, or raise `tables.at_most`.",
            )
        return fresh

    def _not_allowed(self, name: str) -> str | None:
        if name.lower().startswith(OWN_PREFIX):
            return f"names table {name!r}, and tables whose names begin with {OWN_PREFIX} are Penstock's own"
        if self.listed and name not in self.listed:
            return f"names table {name!r}, which `tables` does not list"
        if self.pattern is not None and not self._allowed.fullmatch(name):
            return f"names table {name!r}, which does not match `tables.pattern`"
        return None

    @cached_property
    def _shape(self) -> "re.Pattern[str]":
        parts = _COLUMN.split(self.template)
        return re.compile("".join(f"[{self.letters}]+" if place % 2 else re.escape(part) for place, part in enumerate(parts)))

    @cached_property
    def _allowed(self) -> "re.Pattern[str]":
        return re.compile(self.pattern or "")

    @property
    def _signs(self) -> str:
        return ", _ and -" if self.letters.endswith("-") else " and _"


def shortened(name: str) -> str:
    """Return the name for a message, cut where it is long."""
    return repr(name if len(name) <= 80 else name[:77] + "...")
