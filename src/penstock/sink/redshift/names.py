"""Names of tables and columns as Redshift compares them: in lower case, unless a cluster is configured otherwise."""

import string

from penstock.sql.table_name import Naming

_SMALL = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
_NAMING = Naming(database="Redshift", default_schema="public", most=127)


def folded(name: str) -> str:
    """Return the name as Redshift compares it."""
    return name.translate(_SMALL)


def require_name(name: str) -> str:
    """Return `name`, folded, if Redshift can hold it. Raise Usage."""
    return folded(_NAMING.require(name))


def split_name(name: str) -> tuple[str, str]:
    """Return schema and table, folded, from `table`, `schema.table` or parts in double quotes. Raise Usage."""
    schema, table = _NAMING.split(name)
    return folded(schema), folded(table)


def quoted(name: str) -> str:
    """Return the name as a quoted SQL identifier. It is folded, since quotes keep its case wherever case counts."""
    return '"' + folded(name).replace('"', '""') + '"'
