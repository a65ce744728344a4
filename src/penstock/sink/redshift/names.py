"""Names of tables and columns as Redshift takes them: unless a cluster is told otherwise, capital letters are small ones."""

import string

from penstock.sql.table_name import Naming

_SMALL = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
_NAMING = Naming(database="Redshift", default_schema="public", most=127)


def folded(name: str) -> str:
    """The name as Redshift compares it."""
    return name.translate(_SMALL)


def require_name(name: str) -> str:
    """`name`, if Redshift can hold it. Raises Usage."""
    return folded(_NAMING.require(name))


def split_name(name: str) -> tuple[str, str]:
    """Schema and table as Redshift compares them, from `table`, `schema.table` or parts in double quotes. Raises Usage."""
    schema, table = _NAMING.split(name)
    return folded(schema), folded(table)


def quoted(name: str) -> str:
    """The name as an identifier of SQL. Folded, since in quotes it would count as it is wherever letters do."""
    return '"' + folded(name).replace('"', '""') + '"'
