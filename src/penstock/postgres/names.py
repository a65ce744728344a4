"""Names of tables and columns as PostgreSQL takes them."""

from penstock.errors import Usage

DEFAULT_SCHEMA = "public"
MAX_NAME_BYTES = 63


def split_name(name: str) -> tuple[str, str]:
    """Schema and table from `table`, `schema.table` or parts in double quotes; letters keep their case. Raises Usage."""
    parts, rest = [], name
    while rest:
        part, rest = _first_part(rest, name)
        parts.append(require_name(part))
    if len(parts) == 1:
        return DEFAULT_SCHEMA, parts[0]
    if len(parts) != 2:
        raise _no_name(name)
    return parts[0], parts[1]


def _first_part(text: str, whole: str) -> tuple[str, str]:
    if not text.startswith('"'):
        part, dot, rest = text.partition(".")
        if '"' in part or (dot and not rest):
            raise _no_name(whole)
        return part, rest
    end = 1
    while (end := text.find('"', end)) != -1 and text[end : end + 2] == '""':
        end += 2
    after = text[end + 1 :]
    if end == -1 or (after and (after[0] != "." or len(after) == 1)):
        raise _no_name(whole)
    return text[1:end].replace('""', '"'), after[1:]


def _no_name(name: str) -> Usage:
    return Usage(
        f"`table` is {name!r}, which is no name of a table in PostgreSQL.",
        remedy='Write table, schema.table, or put parts with dots or quotes in double quotes: "my schema"."my.table".',
    )


def require_name(name: str) -> str:
    """`name`, if PostgreSQL can hold it: it would cut a longer one short without an error. Raises Usage."""
    if not name or "\0" in name or len(name.encode()) > MAX_NAME_BYTES:
        raise Usage(
            f"PostgreSQL cannot have the name {name!r}: expected 1 to {MAX_NAME_BYTES} bytes, found {len(name.encode())}.",
            remedy="Rename it.",
        )
    return name
