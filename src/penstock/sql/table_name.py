"""Table names: split into schema and table, checked against a database's limits, and quoted."""

import re
from dataclasses import dataclass

from penstock.errors import Usage

_PART = re.compile(r"""(?:"(?P<quoted>(?:[^"]|"")*)"|(?P<plain>[^".]*))(?:\.(?=.)|\Z)""", re.DOTALL)
"""A part of a name, and the dot before the next one."""


def in_double_quotes(*parts: str) -> str:
    """Return a name as a quoted identifier of standard SQL; several parts are joined by dots."""
    return ".".join('"' + part.replace('"', '""') + '"' for part in parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Naming:
    """The rules for names in one kind of database: up to `most` of `unit`. `database` is its name in messages."""

    database: str
    default_schema: str
    most: int
    unit: str = "bytes"

    def split(self, name: str) -> tuple[str, str]:
        """Return schema and table of `table`, `schema.table` or parts in double quotes, case unchanged. Raises Usage."""
        parts, at = [], 0
        while at < len(name):
            found = _PART.match(name, at)
            if found is None:
                raise self._no_name(name)
            plain, in_quotes, at = found["plain"], found["quoted"], found.end()
            parts.append(self.require(plain if in_quotes is None else in_quotes.replace('""', '"')))
        if len(parts) == 1:
            return self.default_schema, parts[0]
        if len(parts) != 2:
            raise self._no_name(name)
        return parts[0], parts[1]

    def require(self, name: str) -> str:
        """Return `name` if the database can hold it; some databases truncate a longer one without an error. Raises Usage."""
        length = len(name.encode()) if self.unit == "bytes" else len(name)
        if not name or "\0" in name or length > self.most:
            raise Usage(
                f"{self.database} does not allow the name {name!r}: expected 1 to {self.most} {self.unit}, found {length}.",
                remedy="Rename it.",
            )
        return name

    def _no_name(self, name: str) -> Usage:
        return Usage(
            f"`table` is {name!r}, which is no name of a table in {self.database}.",
            remedy='Write table, schema.table, or put parts with dots or quotes in double quotes: "my schema"."my table".',
        )
