"""The user's own SQL over the staged rows: taken apart into statements, none of which may end the transaction.

The databases' clients send each statement alone, and the servers refuse a second one in it: what is read wrongly here is refused
there. `{staged}` stands for the staging table, `{table}` for the sink's own, but not in comments and quoted parts.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from penstock.errors import Usage

STAGED, TABLE = "{staged}", "{table}"
_WORD = re.compile(r"[A-Za-z]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """How one database's SQL is read. `hidden`: what has no say, comments and quoted parts, each matched as a whole.

    `broken`: what begins such a part and does not end it, or hides SQL in a comment. `starts`: the words with which a statement
    may begin. Patterns are matched in this order, at each place in the text.
    """

    database: str
    hidden: "re.Pattern[str]"
    broken: "re.Pattern[str]"
    starts: frozenset[str]


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement in its parts: at even places what has a say, in between what is `hidden`."""

    parts: tuple[str, ...]

    @property
    def shown(self) -> str:
        """The text, with a blank for each hidden part."""
        return " ".join(self.parts[::2])

    def naming(self, *, staged: str, table: str) -> str:
        """The text with these names for the placeholders; a hidden part stays as it is."""
        return "".join(
            part if at % 2 else part.replace(STAGED, staged).replace(TABLE, table) for at, part in enumerate(self.parts)
        )


@dataclass(frozen=True, slots=True)
class Script:
    """Statements of the user's own, with their placeholders."""

    statements: tuple[Statement, ...]

    def naming(self, *, staged: str, table: str) -> Sequence[str]:
        """The statements with the names that the placeholders stand for."""
        return [statement.naming(staged=staged, table=table) for statement in self.statements]


def script_of(text: str, dialect: Dialect) -> Script:
    """The statements in `text`. Raises Usage for one that would end the transaction, or for none that reads staged rows."""
    statements = tuple(statement for statement in _split(text, dialect) if statement.shown.strip())
    for statement in statements:
        word = _WORD.match(statement.shown.lstrip(" \t\r\n("))
        if word is None or word[0].upper() not in dialect.starts:
            raise Usage(
                f"A statement of `merge` begins with {(word[0] if word else statement.shown.strip()[:20])!r}, expected one of "
                f"{', '.join(sorted(dialect.starts))}.",
                remedy="Leave transactions, tables and settings alone: the statements run inside Penstock's own transaction.",
            )
    if not any(STAGED in statement.shown for statement in statements):
        raise Usage(
            f"`merge` has {len(statements)} statements, none of which names {STAGED} outside of comments and quotes.",
            remedy=f"Write {STAGED} where the batch's rows are to be read, as the name of a table.",
        )
    return Script(statements)


def _split(text: str, dialect: Dialect) -> Iterator[Statement]:
    """What stands between semicolons, be it nothing."""
    parts, at = [""], 0
    while at < len(text):
        if hidden := dialect.hidden.match(text, at):
            parts, at = [*parts, hidden[0], ""], hidden.end()
            continue
        if broken := dialect.broken.match(text, at):
            raise Usage(
                f"`merge` has {broken[0]!r} at character {at + 1}, which begins what never ends, or what only some servers read.",
                remedy=f"Correct the SQL, which is read as {dialect.database} reads it.",
            )
        if text[at] == ";":
            yield Statement(tuple(parts))
            parts = [""]
        else:
            parts[-1] += text[at]
        at += 1
    yield Statement(tuple(parts))
