"""Names of tables and columns in MySQL: checked against its limits, and quoted."""

from penstock.errors import Usage

MAX_NAME_CHARACTERS = 64


def require_table_name(name: str) -> str:
    """Return `name` if it names a table in the database of the URL. Raises Usage."""
    if "." in name:
        raise Usage(
            f"`table` is {name!r}, which is no name of a table in the database.",
            remedy="Name the database in `url`, and the table alone in `table`.",
        )
    return require_name(name)


def require_name(name: str) -> str:
    """Return `name` if MySQL allows it. Raises Usage."""
    if not 0 < len(name) <= MAX_NAME_CHARACTERS:
        found = f"expected 1 to {MAX_NAME_CHARACTERS} characters, found {len(name)}"
    elif name.endswith(" ") or any(letter == "\0" or letter > "\uffff" for letter in name):
        found = "it ends with a blank, or has NUL or a character beyond U+FFFF"
    else:
        return name
    raise Usage(f"MySQL cannot have the name {name!r}: {found}.", remedy="Rename it.")


def quoted(name: str) -> str:
    """Return the name as an SQL identifier."""
    return "`" + name.replace("`", "``") + "`"
