"""`UpdateCondition`: a predicate over the row that a table has and the one that is to replace it, and its parser.

The language is a part of SQL that means the same for every table: `old.column` and `new.column`, literals, comparisons, `IS [NOT]
NULL`, `IS [NOT] DISTINCT FROM`, `AND`, `OR`, `NOT` and parentheses. A comparison with NULL is unknown, as in SQL.

    or        := and (OR and)*
    and       := not (AND not)*
    not       := NOT not | '(' or ')' | operand [compared]
    compared  := (= | <> | != | < | <= | > | >=) operand | IS [NOT] NULL | IS [NOT] DISTINCT FROM operand
    operand   := (old | new) '.' name | number | 'text' | TRUE | FALSE | DATE 'text' | TIMESTAMP 'text'
"""

import datetime as dt
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Final, Literal, TypeAlias

from penstock.errors import Usage

Side: TypeAlias = Literal["old", "new"]

_TOKEN: Final = re.compile(
    r"""\s*(?:
      (?P<column>(?:old|new)\s*\.\s*(?:[^\W\d]\w*|`(?:[^`]|``)+`|"(?:[^"]|"")+"))
    | (?P<number>[+-]?(?:\d+(?:\.\d*)?|\.\d+))
    | (?P<text>'(?:[^']|'')*')
    | (?P<sign><=|>=|<>|!=|=|<|>|\(|\))
    | (?P<word>[^\W\d]\w*)
    )""",
    re.VERBOSE | re.IGNORECASE,
)
SIGNS: Final = ("=", "<>", "!=", "<", "<=", ">", ">=")
_LANGUAGE: Final = (
    "Write comparisons of old.column, new.column and literals with AND, OR, NOT, IS NULL and IS DISTINCT FROM, such as "
    "`new.version > old.version`."
)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the table's row (`old`) or of the batch's (`new`)."""

    side: Side
    name: str

    def __str__(self) -> str:
        return f"{self.side}.{self.name}"


Literals: TypeAlias = "int | Decimal | str | bool | dt.date | dt.datetime"
Operand: TypeAlias = "Column | Literals"


@dataclass(frozen=True, slots=True)
class Node:
    """One operation and what it is applied to."""

    operation: str
    parts: "tuple[Node | Operand, ...]"


@dataclass(frozen=True, slots=True)
class UpdateCondition:
    """The parsed condition. `text` is what the settings say, and what a decision records."""

    text: str
    root: Node = field(compare=False, repr=False)

    @property
    def old_columns(self) -> Sequence[str]:
        """The columns of the table's row that the condition looks at."""
        return self._columns("old")

    @property
    def new_columns(self) -> Sequence[str]:
        """The columns of the batch's row that the condition looks at."""
        return self._columns("new")

    def _columns(self, side: Side) -> Sequence[str]:
        return list(dict.fromkeys(column.name for column in columns_in(self.root) if column.side == side))


def parse_condition(text: str) -> UpdateCondition:
    """Return the condition that `text` is. Raise Usage."""
    parser = _Parser(text)
    root = parser.disjunction()
    parser.require_end()
    if not any(column.side == "old" for column in columns_in(root)):
        raise not_understood(
            text, "which looks at no column of the table's row", "Name one as old.column; `where:` is for the rest."
        )
    return UpdateCondition(text, root)


class _Parser:
    """Reads the condition's tokens from left to right."""

    def __init__(self, text: str) -> None:
        self._text, self._tokens, self._at = text, list(_tokens(text)), 0

    def disjunction(self) -> Node:
        return self._chain("or", self._conjunction)

    def require_end(self) -> None:
        if self._at < len(self._tokens):
            raise self._unexpected()

    def _conjunction(self) -> Node:
        return self._chain("and", self._negation)

    def _chain(self, operation: str, part: Callable[[], Node]) -> Node:
        found = part()
        while self._takes(operation):
            found = Node(operation, (found, part()))
        return found

    def _negation(self) -> Node:
        if self._takes("not"):
            return Node("not", (self._negation(),))
        if self._takes("("):
            found = self.disjunction()
            self._demand(")")
            return found
        return self._comparison()

    def _comparison(self) -> Node:
        left = self._operand()
        for sign in SIGNS:
            if self._takes(sign):
                return Node(sign, (left, self._operand()))
        if not self._takes("is"):
            return Node("true", (left,))
        negates = self._takes("not")
        if self._takes("null"):
            found = Node("null", (left,))
        else:
            self._demand("distinct")
            self._demand("from")
            found = Node("distinct", (left, self._operand()))
        return Node("not", (found,)) if negates else found

    def _operand(self) -> Operand:
        kind, token = self._next()
        if kind == "column":
            side, _, name = token.partition(".")
            return Column("old" if side.strip().lower() == "old" else "new", _unquoted(name.strip()))
        if kind == "number":
            return Decimal(token) if "." in token else int(token)
        if kind == "text":
            return token[1:-1].replace("''", "'")
        word = token.lower()
        if word in {"true", "false"}:
            return word == "true"
        if word in {"date", "timestamp"} and self._peek()[0] == "text":
            return self._instant(word, self._next()[1][1:-1])
        self._at -= 1
        raise self._unexpected()

    def _instant(self, word: str, text: str) -> "dt.date | dt.datetime":
        try:
            return dt.date.fromisoformat(text) if word == "date" else dt.datetime.fromisoformat(text)
        except ValueError as cause:
            raise not_understood(self._text, f"in which {text!r} is no {word.upper()}", "Write it as ISO 8601 has it.") from cause

    def _peek(self) -> tuple[str, str]:
        return self._tokens[self._at] if self._at < len(self._tokens) else ("end", "")

    def _next(self) -> tuple[str, str]:
        found = self._peek()
        if found[0] == "end":
            raise self._unexpected()
        self._at += 1
        return found

    def _takes(self, token: str) -> bool:
        kind, found = self._peek()
        if kind not in {"word", "sign"} or found.lower() != token:
            return False
        self._at += 1
        return True

    def _demand(self, token: str) -> None:
        if not self._takes(token):
            raise self._unexpected(expected=token.upper())

    def _unexpected(self, *, expected: str = "") -> Usage:
        kind, found = self._peek()
        what = "which ends too early" if kind == "end" else f"in which {found!r} is not understood"
        return not_understood(self._text, what + (f", expected {expected}" if expected else ""), _LANGUAGE)


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    start, end = 0, len(text.rstrip())
    while start < end:
        found = _TOKEN.match(text, start)
        if found is None or found.lastgroup is None:
            raise not_understood(text, f"in which {text[start:].split(maxsplit=1)[0]!r} is not understood", _LANGUAGE)
        yield found.lastgroup, found[found.lastgroup]
        start = found.end()


def _unquoted(name: str) -> str:
    return name[1:-1].replace(name[0] * 2, name[0]) if name[0] in '`"' else name


def not_understood(text: str, what: str, remedy: str) -> Usage:
    """Return the error for a condition; `what` goes on with its text."""
    return Usage(f"update_when is {text!r}, {what}.", remedy=remedy)


def columns_in(part: "Node | Operand") -> Iterator[Column]:
    """Yield the columns that the operation or the operand looks at."""
    if isinstance(part, Column):
        yield part
    elif isinstance(part, Node):
        for inner in part.parts:
            yield from columns_in(inner)
