"""Names of tables and columns as PostgreSQL takes them."""

from penstock.tablename import Naming

DEFAULT_SCHEMA = "public"
_NAMING = Naming(database="PostgreSQL", default_schema=DEFAULT_SCHEMA, most=63)

split_name, require_name = _NAMING.split, _NAMING.require
