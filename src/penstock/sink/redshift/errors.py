"""Redshift's errors, translated to Penstock's. Messages name the cluster and never the password."""

import re

from redshift_connector.error import Error, InterfaceError

from penstock.errors import Conflict, Failed, PenstockError, Retryable

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
_STARTS = "and start again: what was decided is published then."


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
    """Return the error to raise for one of the driver before COMMIT: nothing was written."""
    code, reason = code_of(cause), reason_of(cause)
    if is_conflict(cause):
        return Conflict(reason)
    if not code or code in _ENTRY:
        for sign, remedy in _WRONG_ADDRESS:
            if sign in reason:
                return kind(f"{place} does not let us in: {reason}.", remedy=remedy)
    if not code:
        return _no_answer(place, reason, kind)
    for sign, make in _BY_SQLSTATE:
        if code.startswith(sign):
            return make(place, reason, kind)
    return kind(f"{place} cannot be used: {reason}.", remedy=f"Mend that {_STARTS}")


def _no_answer(place: str, reason: str, _: type[Failed]) -> PenstockError:
    return Retryable(f"{place} does not answer: {reason}.", remedy="Start the cluster or mend the network, and try again.")


def _waited(place: str, reason: str, _: type[Failed]) -> PenstockError:
    message = f"Another session holds a lock in {place} that is needed: {reason}."
    return Retryable(message, remedy="Look into svv_transactions, and try again.")


def _full(place: str, reason: str, kind: type[Failed]) -> PenstockError:
    return kind(f"The disk of {place} is full: {reason}.", remedy=f"Make room {_STARTS}")


def _constraint(place: str, reason: str, kind: type[Failed]) -> PenstockError:
    return kind(f"The table in {place} refused a row: {reason}.", remedy=f"Drop the constraint or correct the rows, {_STARTS}")


def _forbidden(place: str, reason: str, kind: type[Failed]) -> PenstockError:
    return kind(f"The user may not do that in {place}: {reason}.", remedy=f"GRANT it {_STARTS}")


_BY_SQLSTATE = (
    ("57014", _waited),
    ("55P03", _waited),
    ("53100", _full),
    ("23", _constraint),
    (FORBIDDEN, _forbidden),
    *((code, _no_answer) for code in ("08", "53", "57", "25P")),
)
"""Handlers by code or class of codes; the first that fits decides.

57014 is a statement that took too long: only the one that waits for a lock has a limit.
"""
