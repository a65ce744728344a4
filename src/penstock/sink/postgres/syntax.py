"""PostgreSQL's lexical rules for the user's own SQL. Source: its manual, "Lexical Structure"."""

import re

from penstock.sink.table.script import Syntax

_HIDDEN = r"""
--[^\n]*
| /\*(?:[^*/]|\*(?!/)|/(?!\*))*\*/
| (?<![\w$])[eE]'(?:[^'\\]|''|\\.)*'
| '(?:[^']|'')*'
| "(?:[^"]|"")*"
| (?<![\w$])\$(?P<tag>(?:[^\W\d]\w*)?)\$.*?\$(?P=tag)\$
"""
_BROKEN = r"""/\*|\*/|'|"|(?<![\w$])\$(?:[^\W\d]\w*)?\$"""

POSTGRES = Syntax(
    database="PostgreSQL",
    hidden=re.compile(_HIDDEN, re.VERBOSE | re.DOTALL),
    broken=re.compile(_BROKEN),
    starts=frozenset({"INSERT", "UPDATE", "DELETE", "MERGE", "WITH"}),
)
"""A comment inside a comment is refused."""
