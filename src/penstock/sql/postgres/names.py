"""Names of tables and columns as PostgreSQL takes them."""

from penstock.sql.table_name import Naming, in_double_quotes

DEFAULT_SCHEMA = "public"
_NAMING = Naming(database="PostgreSQL", default_schema=DEFAULT_SCHEMA, most=63)

split_name, require_name = _NAMING.split, _NAMING.require


def quoted_table(name: str) -> str:
    """The table that is so named in the settings, as a statement names it. Raises Usage."""
    return in_double_quotes(*split_name(name))
