"""Names of tables and columns as SQL Server takes them: most databases there do not tell upper from lower case."""

from penstock.sql.table_name import Naming

_NAMING = Naming(database="SQL Server", default_schema="dbo", most=128, unit="characters")

split_name, require_name = _NAMING.split, _NAMING.require


def folded(name: str) -> str:
    """The name as it is compared."""
    return name.lower()


def folded_name(name: str) -> tuple[str, str]:
    """Schema and table as they are compared, from `table`, `schema.table` or parts in double quotes. Raises Usage."""
    schema, table = split_name(name)
    return folded(schema), folded(table)


def quoted(name: str) -> str:
    """The name as an identifier of SQL."""
    return "[" + name.replace("]", "]]") + "]"
