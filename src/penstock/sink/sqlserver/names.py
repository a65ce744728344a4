"""Names of tables and columns as SQL Server takes them: most databases there do not tell upper from lower case."""

from penstock.tablename import Naming

_NAMING = Naming(database="SQL Server", default_schema="dbo", most=128, unit="characters")

split_name, require_name = _NAMING.split, _NAMING.require


def folded(name: str) -> str:
    """The name as it is compared."""
    return name.lower()


def quoted(name: str) -> str:
    """The name as an identifier of SQL."""
    return "[" + name.replace("]", "]]") + "]"
