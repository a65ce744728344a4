"""Translation of PostgreSQL's errors into Penstock's. Messages name the server and never the password."""

from collections.abc import Callable

import psycopg

from penstock.errors import Conflict, Failed, PenstockError
from penstock.sql.errors import ServerError
from penstock.sql.table_name import in_double_quotes

_WRONG_ADDRESS = (
    ("password authentication failed", "Correct user and password in the URL."),
    ("no password supplied", "Give the password in the URL, best as ${VARIABLE}."),
    ("authentication failed", "Correct user and credentials in the URL."),
    ("no pg_hba.conf entry", "Let the server's pg_hba.conf admit this user from this machine."),
    ("does not exist", "Create it, or correct the URL."),
    ("is not permitted to log in", "Use a role with LOGIN."),
    ("permission denied for database", "GRANT CONNECT ON DATABASE to the role."),
    ("server does not support SSL", "Correct `sslmode` in the URL."),
    ("certificate", "Correct the certificates that the URL names."),
)
"""Remedies for refused connections, which fail at every try, by the message: there is no code before the session exists."""
_FINDS_PARTITION = "ExecFindPartition"
"""The server's function that reports a missing partition. Its error has the code of any CHECK, and a text in any language."""
FORBIDDEN = "42501"
"""The code for a privilege that the role lacks."""
GRANT_WHICH = "GRANT it what it lacks, on a table SELECT, INSERT, UPDATE and DELETE, on a schema USAGE and CREATE,"
"""The remedy for a lacking privilege: the server's message names the object, and not the privilege."""
_CONFLICTS = frozenset({"40001", "40P01"})


def translate_error(cause: psycopg.Error, place: str, kind: type[Failed]) -> PenstockError | Conflict:
    """Return Penstock's error for an error before COMMIT, when nothing was written."""
    state, error = code_of(cause), ServerError(place=place, reason=reason_of(cause), kind=kind, user="role")
    if state in _CONFLICTS:
        return Conflict(error.reason)
    if not state and isinstance(cause, psycopg.OperationalError | psycopg.InterfaceError):
        remedies = (remedy for sign, remedy in _WRONG_ADDRESS if sign in error.reason)
        return next(map(error.not_let_in, remedies), None) or error.no_answer()
    if cause.diag.source_function == _FINDS_PARTITION:
        return error.refused_row(_partition_of(cause))
    return next((meaning(error) for sign, meaning in _MEANINGS if state.startswith(sign)), error.unusable())


def code_of(cause: psycopg.Error) -> str:
    """Return the server's code, empty if the error is not the server's."""
    return cause.sqlstate or ""


def reason_of(cause: psycopg.Error) -> str:
    """Return the server's own message, or libpq's first line, without the values of rows that DETAIL would show."""
    text = cause.diag.message_primary or next((line for line in str(cause).splitlines() if line.strip()), type(cause).__name__)
    return " ".join(text.split()).rpartition("FATAL: ")[2].rstrip(".").strip()


def connection_lost(point: str) -> psycopg.Error:
    """Return the error that libpq would raise at a fault point if the connection broke: no code, whatever the server did."""
    return psycopg.OperationalError(f"server closed the connection unexpectedly ({point})")


def _partition_of(cause: psycopg.Error) -> str:
    """Return the remedy for a missing partition. The error names the table that lacks it, which may be a partition itself."""
    table = in_double_quotes(cause.diag.schema_name or "", cause.diag.table_name or "")
    return f"Create the partition that a row lacks, by CREATE TABLE … PARTITION OF {table} FOR VALUES …,"


_SEE_ALL = "ALTER ROLE … BYPASSRLS, or ALTER TABLE … DISABLE ROW LEVEL SECURITY (and NO FORCE ROW LEVEL SECURITY),"
_MEANINGS: tuple[tuple[tuple[str, ...], Callable[[ServerError], PenstockError]], ...] = (
    (("55P03",), lambda error: error.locked("pg_locks")),
    (("53100",), ServerError.full),
    (("23",), ServerError.refused_row),
    ((FORBIDDEN,), lambda error: error.forbidden(_SEE_ALL if "row-level security" in error.reason else GRANT_WHICH)),
    (("08", "53", "57", "25P"), ServerError.no_answer),
)
"""By SQLSTATE code or class of codes; the first match counts."""
