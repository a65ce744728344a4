"""Quoting of column names for Spark SQL."""


def quoted(column: str) -> str:
    """Return the column's name as a quoted identifier; it may contain any characters."""
    return "`" + column.replace("`", "``") + "`"
