"""How MySQL and MariaDB read the user's own SQL. Source: the manual of MySQL, "Comments" and "String Literals"."""

import re

from penstock.sink.table.script import Dialect

_HIDDEN = r"""
--(?=\s|\Z)[^\n]*
| \#[^\n]*
| /\*(?!M?!).*?\*/
| '(?:[^'\\]|''|\\.)*'
| "(?:[^"\\]|""|\\.)*"
| `(?:[^`]|``)*`
"""

MYSQL = Dialect(
    database="MySQL",
    hidden=re.compile(_HIDDEN, re.VERBOSE | re.DOTALL),
    broken=re.compile(r"/\*M?!?|'|\"|`"),
    starts=frozenset({"INSERT", "UPDATE", "DELETE", "REPLACE", "WITH"}),
)
"""The session's `sql_mode` is Penstock's own, in which a backslash escapes and double quotes are a text's."""
