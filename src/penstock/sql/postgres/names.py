"""Names of tables and columns in PostgreSQL: split, checked against its limits, and quoted."""

from penstock.sql.table_name import Naming, in_double_quotes

DEFAULT_SCHEMA = "public"
_NAMING = Naming(database="PostgreSQL", default_schema=DEFAULT_SCHEMA, most=63)

split_name, require_name = _NAMING.split, _NAMING.require


def quoted_table(name: str) -> str:
    """Return the table's name from the settings as it is written in SQL. Raises Usage."""
    return in_double_quotes(*split_name(name))
