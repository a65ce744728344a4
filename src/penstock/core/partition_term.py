"""`PartitionTerm`: an entry of `partition_by` that is no column, but a function of one, as Spark and Iceberg write it."""

import re
from collections.abc import Container
from dataclasses import dataclass
from typing import Final

from penstock.errors import Usage

TIMES: Final = {"year": "years", "month": "months", "day": "days", "date": "days", "hour": "hours"}
"""What Spark writes besides the plural."""
COUNTED: Final = {"bucket": "N", "truncate": "W"}
"""The functions with a number, and what documents call it."""

_CALL = re.compile(r"\s*(\w+)\s*\((.*)\)\s*", re.ASCII | re.DOTALL)
_ARGUMENTS = re.compile(r"\s*([+-]?\d+)\s*,(.*)", re.ASCII | re.DOTALL)
_GREATEST: Final = 2**31 - 1
_REMEDY: Final = (
    "Write a column, or days(column), bucket(16, column) or truncate(4, column), say. Rename a column that has such a name."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionTerm:
    """A `function` of the values of `column`; `number` is how many buckets there are, or the width of what is left."""

    function: str
    column: str
    number: int = 0

    def __str__(self) -> str:
        """Return the one spelling that settings, decisions and messages compare."""
        column = f"`{self.column}`" if _unquoted(self.column) != self.column else self.column
        return f"{self.function}({f'{self.number}, ' if self.number else ''}{column})"

    @property
    def family(self) -> tuple[str, str]:
        """What a table may have one of: Iceberg takes two partitions by time of one column for redundant."""
        return self.column, "time" if self.function in TIMES.values() else self.function


def looks_like_term(text: str) -> bool:
    """Return whether the text is a function's call, and so no name of a column."""
    return _CALL.fullmatch(text) is not None


def parse_term(text: str) -> PartitionTerm:
    """Return the term that the text is. Raises Usage."""
    call = _CALL.fullmatch(text)
    name = "" if call is None else call[1].lower()
    function = TIMES.get(name, name)
    if call is None or function not in {*TIMES.values(), *COUNTED}:
        known = ", ".join((*COUNTED, *dict.fromkeys(TIMES.values())))
        raise Usage(f"partition_by has {text!r}, expected a column or one of {known} of one.", remedy=_REMEDY)
    if function not in COUNTED:
        return PartitionTerm(function=function, column=_column(text, call[2]))
    arguments = _ARGUMENTS.fullmatch(call[2])
    if arguments is None:
        raise Usage(
            f"partition_by has {text!r}, expected {function}({COUNTED[function]}, column), with a whole number first.",
            remedy=_REMEDY,
        )
    if not 0 < int(arguments[1]) <= _GREATEST:
        raise Usage(
            f"partition_by has {text!r}, expected {COUNTED[function]} from 1 to {_GREATEST}, found {arguments[1]}.",
            remedy=_REMEDY,
        )
    return PartitionTerm(function=function, number=int(arguments[1]), column=_column(text, arguments[2]))


def _column(text: str, given: str) -> str:
    column = _unquoted(given)
    if not column:
        raise Usage(f"partition_by has {text!r}, which names no column.", remedy=_REMEDY)
    return column


def _unquoted(given: str) -> str:
    """Return the name of a column that is written so: blanks around it count only between backquotes."""
    column = given.strip()
    return column[1:-1] if len(column) > 1 and column[0] == column[-1] == "`" else column


def is_term(text: str) -> bool:
    """Return whether the text is a term."""
    try:
        parse_term(text)
    except Usage:
        return False
    return True


def term_of(text: str, columns: Container[str]) -> PartitionTerm | None:
    """Return the term that an entry of `partition_by` is; None for one of the `columns`, or what is neither."""
    return parse_term(text) if text not in columns and looks_like_term(text) else None


def source_of(text: str, columns: Container[str]) -> str:
    """Return the column that the values of an entry of `partition_by` are made of."""
    return parse_term(text).column if text not in columns and is_term(text) else text
