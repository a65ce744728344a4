"""Table names: split into schema and table, checked against a database's limits, and quoted."""

from dataclasses import dataclass

from penstock.errors import Usage


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
        parts, rest = [], name
        while rest:
            part, rest = self._first_part(rest, name)
            parts.append(self.require(part))
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
                f"{self.database} cannot have the name {name!r}: expected 1 to {self.most} {self.unit}, found {length}.",
                remedy="Rename it.",
            )
        return name

    def _first_part(self, text: str, whole: str) -> tuple[str, str]:
        if not text.startswith('"'):
            part, dot, rest = text.partition(".")
            if '"' in part or (dot and not rest):
                raise self._no_name(whole)
            return part, rest
        end = 1
        while (end := text.find('"', end)) != -1 and text[end : end + 2] == '""':
            end += 2
        after = text[end + 1 :]
        if end == -1 or (after and (after[0] != "." or len(after) == 1)):
            raise self._no_name(whole)
        return text[1:end].replace('""', '"'), after[1:]

    def _no_name(self, name: str) -> Usage:
        return Usage(
            f"`table` is {name!r}, which is no name of a table in {self.database}.",
            remedy='Write table, schema.table, or put parts with dots or quotes in double quotes: "my schema"."my table".',
        )
