"""SQL Server's errors, translated to Penstock's. Messages name the server and never the password, nor values of rows."""

import re
from collections.abc import Callable

import OpenSSL.SSL
import pytds

from penstock.errors import Conflict, Failed, PenstockError
from penstock.sql.errors import ServerError
from penstock.sql.url import UNTRUSTED_CERTIFICATE

_CONFLICTS = frozenset({1205, 3960, 3961})
"""The victim of a deadlock, and conflicts of snapshots."""
_LOCKED = frozenset({1222})
_FULL = frozenset({1101, 1105, 9002, 40544})
_CONSTRAINTS = frozenset({515, 547, 2601, 2627, 2628, 8114, 8115, 8152, 50000})
FORBIDDEN = frozenset({229, 230, 262, 297, 300, 916, 1088, 2760, 4902})
"""Privileges that the user lacks. The server reports a table that may not be altered as one that does not exist."""
MADE_MEANWHILE = frozenset({2714, 2705})
"""A table or a column of that name exists."""
_READ_ONLY = frozenset({3906, 976, 978})
_UNAVAILABLE = frozenset({0, 64, 233, 596, 701, 802, 845, 6005, 10053, 10054, 10060, 10928, 10929, 17142, 17830, 18401})
_AZURE = frozenset({40143, 40197, 40501, 40540, 40613, 40627, 42108, 42109, 49918, 49919, 49920})
"""A database that is being moved, or throttled."""
_ENTRY = {
    4060: "Create the database, or correct the URL.",
    18452: "Use a login of SQL Server with a password.",
    18456: "Correct user and password in the URL.",
    18470: "Enable the login.",
    18486: "Unlock the login.",
    18487: "Set a new password for the login, and correct the URL.",
    18488: "Set a new password for the login, and correct the URL.",
    40532: "Correct the server's name in the URL.",
    40615: "Let the server's firewall admit this machine.",
}
"""Remedies for logins that the server refuses, at every try."""
_DISTRUSTED = ("certificate verify failed", "Certificate does not match")
_VALUES = re.compile(r"(duplicate key value is|Truncated value:) (\(.*\)|'.*')", re.DOTALL)


def connection_lost(point: str) -> pytds.Error:
    """Return the error that the driver would raise at a fault point if the connection broke."""
    return pytds.InterfaceError(f"Server closed connection ({point})")


def code_of(cause: Exception) -> int:
    """Return the server's number of the error, 0 if it has none."""
    return int(getattr(cause, "msg_no", 0) or 0)


def reason_of(cause: Exception) -> str:
    """Return the server's message without the values of rows that it contains."""
    reason = str(getattr(cause, "text", "") or (cause.args[0] if cause.args else type(cause).__name__))
    if isinstance(cause, OpenSSL.SSL.Error) and cause.args and isinstance(cause.args[0], list):
        reason = "; ".join(reason for *_, reason in cause.args[0])
    return " ".join(_VALUES.sub(r"\1 …", reason).split()).rstrip(".")


def is_conflict(cause: Exception) -> bool:
    """Return whether the server reports that it rolled back because of another transaction."""
    return code_of(cause) in _CONFLICTS


def translate_error(cause: Exception, place: str, kind: type[Failed]) -> PenstockError | Conflict:
    """Return Penstock's error for a driver's error before COMMIT, when nothing was written."""
    code, error = code_of(cause), ServerError(place=place, reason=reason_of(cause), kind=kind)
    if code in _CONFLICTS:
        return Conflict(error.reason)
    if code in _ENTRY:
        return error.not_let_in(_ENTRY[code])
    if not code and any(sign in error.reason for sign in _DISTRUSTED):
        return error.not_let_in(UNTRUSTED_CERTIFICATE)
    return next((meaning(error) for codes, meaning in _MEANINGS if code in codes), error.unusable())


_MEANINGS: tuple[tuple[frozenset[int], Callable[[ServerError], PenstockError]], ...] = (
    (_LOCKED, lambda error: error.locked("sys.dm_tran_locks")),
    (_READ_ONLY, lambda error: error.read_only("primary replica")),
    (_UNAVAILABLE | _AZURE, ServerError.no_answer),
    (_FULL, lambda error: error.full("disk or log")),
    (_CONSTRAINTS, ServerError.refused_row),
    (FORBIDDEN, ServerError.forbidden),
)
