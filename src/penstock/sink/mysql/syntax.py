"""MySQL's and MariaDB's lexical rules for the user's own SQL. Source: MySQL's manual, "Comments" and "String Literals"."""

import re

from penstock.sink.table.script import Syntax

_HIDDEN = r"""
--(?=\s|\Z)[^\n]*
| \#[^\n]*
| /\*(?!M?!).*?\*/
| '(?:[^'\\]|''|\\.)*'
| "(?:[^"\\]|""|\\.)*"
| `(?:[^`]|``)*`
"""

MYSQL = Syntax(
    database="MySQL",
    hidden=re.compile(_HIDDEN, re.VERBOSE | re.DOTALL),
    broken=re.compile(r"/\*M?!?|'|\"|`"),
    starts=frozenset({"INSERT", "UPDATE", "DELETE", "REPLACE", "WITH"}),
)
"""Holds for the `sql_mode` that Penstock sets: a backslash escapes, and double quotes enclose a string."""
