"""The user's SQL of `write: merge`, split into statements, none of which may end the transaction.

Database clients send each statement alone, and servers refuse a second one inside it: what is parsed wrongly here is refused
there. `{staged}` stands for the staging table, `{table}` for the sink's own, but not in comments and quoted parts.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from penstock.errors import Usage
from penstock.support.secret import scrub

STAGED, TABLE = "{staged}", "{table}"
_WORD = re.compile(r"[A-Za-z]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Syntax:
    """How one database's SQL is parsed. `hidden` matches a whole comment or quoted part, in which nothing is parsed.

    `broken` matches the beginning of such a part that never ends, or a comment that hides SQL. `starts`: the words with which a
    statement may begin. Patterns are tried in this order, at each place in the text.
    """

    database: str
    hidden: "re.Pattern[str]"
    broken: "re.Pattern[str]"
    starts: frozenset[str]


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement in parts: SQL at even indexes, comments and quoted parts (`Syntax.hidden`) at odd indexes."""

    parts: tuple[str, ...]

    @property
    def shown(self) -> str:
        """The statement's SQL, with a blank in place of each hidden part."""
        return " ".join(self.parts[::2])

    def naming(self, *, staged: str, table: str) -> str:
        """Return the statement with these names in place of the placeholders; hidden parts stay as they are."""
        return "".join(
            part if at % 2 else part.replace(STAGED, staged).replace(TABLE, table) for at, part in enumerate(self.parts)
        )


@dataclass(frozen=True, slots=True)
class Script:
    """The statements of the user's SQL, with their placeholders."""

    statements: tuple[Statement, ...]

    def naming(self, *, staged: str, table: str) -> Sequence[str]:
        return [statement.naming(staged=staged, table=table) for statement in self.statements]


def script_of(text: str, syntax: Syntax) -> Script:
    """Return the statements in `text`. Raise Usage for one that may end the transaction, or if none reads the staged rows."""
    statements = tuple(statement for statement in _split(text, syntax) if statement.shown.strip())
    for statement in statements:
        word = _first_word(statement.shown)
        if word is None or word[0].upper() not in syntax.starts:
            shown = scrub(statement.shown)
            word = _first_word(shown)
            begins = word[0] if word else shown.strip()[:20]
            raise Usage(
                f"A statement of `merge` begins with {begins!r}, expected one of {', '.join(sorted(syntax.starts))}.",
                remedy="Leave transactions, tables and settings alone: the statements run inside Penstock's own transaction.",
            )
    if not any(STAGED in statement.shown for statement in statements):
        raise Usage(
            f"`merge` has {len(statements)} statements, none of which names {STAGED} outside of comments and quotes.",
            remedy=f"Write {STAGED} where the batch's rows are to be read, as the name of a table.",
        )
    return Script(statements)


def _first_word(statement: str) -> "re.Match[str] | None":
    return _WORD.match(statement.lstrip(" \t\r\n("))


def _split(text: str, syntax: Syntax) -> Iterator[Statement]:
    """Yield the statements between semicolons, empty ones included."""
    parts, at = [""], 0
    while at < len(text):
        if hidden := syntax.hidden.match(text, at):
            parts, at = [*parts, hidden[0], ""], hidden.end()
            continue
        if broken := syntax.broken.match(text, at):
            raise Usage(
                f"`merge` has {broken[0]!r} at character {at + 1}, which begins an unclosed quote or comment, or one that only "
                "some servers read.",
                remedy=f"Correct the SQL, which is read as {syntax.database} reads it.",
            )
        if text[at] == ";":
            yield Statement(tuple(parts))
            parts = [""]
        else:
            parts[-1] += text[at]
        at += 1
    yield Statement(tuple(parts))
