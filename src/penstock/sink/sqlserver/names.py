"""Names of tables and columns as SQL Server compares them: most databases there ignore case."""

from penstock.sql.table_name import Naming

_NAMING = Naming(database="SQL Server", default_schema="dbo", most=128, unit="characters")

split_name, require_name = _NAMING.split, _NAMING.require


def folded(name: str) -> str:
    """Return the name as SQL Server compares it."""
    return name.lower()


def folded_name(name: str) -> tuple[str, str]:
    """Return schema and table, folded, from `table`, `schema.table` or parts in double quotes. Raise Usage."""
    schema, table = split_name(name)
    return folded(schema), folded(table)


def quoted(name: str) -> str:
    """Return the name as an SQL identifier in brackets."""
    return "[" + name.replace("]", "]]") + "]"
