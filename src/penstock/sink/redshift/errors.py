"""Redshift's errors, translated to Penstock's. Messages name the cluster and never the password."""

import re
from collections.abc import Callable

from redshift_connector.error import Error, InterfaceError

from penstock.errors import Conflict, Failed, PenstockError
from penstock.sql.errors import ServerError

_SERIAL = re.compile(r"\b1023\b|[Ss]erializable isolation violation|could not serialize access|deadlock detected")
"""Redshift reports its own conflicts by a number in the text."""
FORBIDDEN = "42501"
"""The code for a privilege that the user lacks."""
MADE_MEANWHILE = frozenset({"23505", "42P07", "42701"})
"""A table or a column of that name exists."""
_CONFLICTS = frozenset({"40001", "40P01"})
_WRONG_ADDRESS = (
    ("password authentication failed", "Correct user and password in the URL."),
    ("authentication failed", "Correct user and password in the URL."),
    ("does not exist", "Create it, or correct the URL."),
    ("Server refuses SSL", "Let the server speak TLS, or set `?sslmode=disable` in the URL."),
    ("CERTIFICATE_VERIFY_FAILED", "Correct the host in the URL, or set `?sslmode=verify-ca` in it."),
    ("permission denied for database", "GRANT the user its rights on the database."),
)
_ENTRY = frozenset({"28000", "28P01", "3D000", FORBIDDEN})


def connection_lost(point: str) -> Error:
    """Return the error that the driver would raise at a fault point if the connection broke."""
    return InterfaceError(f"BrokenPipe: server socket closed ({point}).")


def code_of(cause: Exception) -> str:
    """Return the server's code, empty if the error is not the server's."""
    fields = cause.args[0] if cause.args else None
    return str(fields.get("C", "")) if isinstance(fields, dict) else ""


def reason_of(cause: Exception) -> str:
    """Return the server's message without its details, which show values of rows; or else the client's."""
    fields = cause.args[0] if cause.args else type(cause).__name__
    text = str(fields.get("M", "")) if isinstance(fields, dict) else " ".join(map(str, cause.args)) or type(cause).__name__
    return " ".join(text.split()).rstrip(".")


def is_conflict(cause: Exception) -> bool:
    """Return whether the server reports that it rolled back because of another transaction."""
    return code_of(cause) in _CONFLICTS or bool(code_of(cause) and _SERIAL.search(reason_of(cause)))


def translate_error(cause: Exception, place: str, kind: type[Failed]) -> PenstockError | Conflict:
    """Return Penstock's error for a driver's error before COMMIT, when nothing was written."""
    code, error = code_of(cause), ServerError(place=place, reason=reason_of(cause), kind=kind, server="cluster")
    if is_conflict(cause):
        return Conflict(error.reason)
    if not code or code in _ENTRY:
        for sign, remedy in _WRONG_ADDRESS:
            if sign in error.reason:
                return error.not_let_in(remedy)
    if not code:
        return error.no_answer()
    return next((meaning(error) for sign, meaning in _MEANINGS if code.startswith(sign)), error.unusable())


_MEANINGS: tuple[tuple[tuple[str, ...], Callable[[ServerError], PenstockError]], ...] = (
    (("57014", "55P03"), lambda error: error.locked("svv_transactions")),
    (("53100",), ServerError.full),
    (("23",), ServerError.refused_row),
    ((FORBIDDEN,), ServerError.forbidden),
    (("08", "53", "57", "25P"), ServerError.no_answer),
)
"""By code or class of codes; the first match counts.

57014 is a statement that took too long: only the statement that waits for a lock has a limit.
"""
