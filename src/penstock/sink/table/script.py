"""The user's own SQL over the staged rows: taken apart into statements, none of which may end the transaction.

The databases' clients send each statement alone, and the servers refuse a second one in it: what is read wrongly here is refused
there. `{staged}` stands for the staging table, `{table}` for the sink's own.
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
class Script:
    """Statements of the user's own, with their placeholders."""

    statements: tuple[str, ...]

    def naming(self, *, staged: str, table: str) -> Sequence[str]:
        """The statements with the names that the placeholders stand for."""
        return [statement.replace(STAGED, staged).replace(TABLE, table) for statement in self.statements]


def script_of(text: str, dialect: Dialect) -> Script:
    """The statements in `text`. Raises Usage for one that would end the transaction, or for none that reads staged rows."""
    statements = []
    for statement, shown in _split(text, dialect):
        word = _WORD.match(shown.lstrip(" \t\r\n("))
        if word is None or word[0].upper() not in dialect.starts:
            raise Usage(
                f"A statement of `merge` begins with {(word[0] if word else shown.strip()[:20])!r}, expected one of "
                f"{', '.join(sorted(dialect.starts))}.",
                remedy="Leave transactions, tables and settings alone: the statements run inside Penstock's own transaction.",
            )
        statements.append(statement)
    if not any(STAGED in statement for statement in statements):
        raise Usage(
            f"`merge` has {len(statements)} statements, none of which names {STAGED}.",
            remedy=f"Write {STAGED} where the batch's rows are to be read, as the name of a table.",
        )
    return Script(tuple(statements))


def _split(text: str, dialect: Dialect) -> Iterator[tuple[str, str]]:
    """Each statement as it is, and with blanks for what has no say."""
    first, shown, at = 0, "", 0
    while at < len(text):
        if hidden := dialect.hidden.match(text, at):
            shown, at = f"{shown} ", hidden.end()
        elif broken := dialect.broken.match(text, at):
            raise Usage(
                f"`merge` has {broken[0]!r} at character {at + 1}, which begins what never ends, or what only some servers read.",
                remedy=f"Correct the SQL, which is read as {dialect.database} reads it.",
            )
        elif text[at] == ";":
            if shown.strip():
                yield text[first:at], shown
            first, shown, at = at + 1, "", at + 1
        else:
            shown, at = shown + text[at], at + 1
    if shown.strip():
        yield text[first:], shown
