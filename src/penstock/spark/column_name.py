"""Names of columns as Spark's SQL takes them."""


def quoted(column: str) -> str:
    """A column's name as an identifier, whatever is in it."""
    return "`" + column.replace("`", "``") + "`"
