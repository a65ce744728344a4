"""Translation of MySQL's and MariaDB's errors into Penstock's.

Messages name the server, and never the password or values of rows.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pymysql
from pymysql.constants import CR

from penstock.errors import Conflict, Failed, PenstockError
from penstock.sql.errors import ServerError
from penstock.sql.url import UNTRUSTED_CERTIFICATE
from penstock.support.connection import is_untrusted_certificate

DUPLICATE = 1062
DENIED = frozenset({1044, 1142, 1143, 1227})
"""The user lacks a privilege."""
ABSENT_TABLE = 1146
_NO_VIEW = DENIED | {1050, 1064}
"""The user lacks a privilege, an object that the user cannot see has the name, or the server has no JSON_TABLE."""
_CONFLICTS = frozenset({1213, 1020})
"""A deadlock, or a record that changed since a snapshot was taken."""
_LOCKED = frozenset({1205, 3572})
_FULL = frozenset({1021, 1028, 1041, 1114})
CONSTRAINTS = frozenset({DUPLICATE, 1048, 1216, 1217, 1451, 1452, 1644, 3819, 4025})
UNPARTITIONED = frozenset({1526, 1591})
_PARTITION = "Create the partition that a row lacks, by ALTER TABLE … ADD PARTITION (PARTITION … VALUES …),"
_FORBIDDEN = frozenset({1142, 1143, 1227, 1370})
_UNAVAILABLE = frozenset(
    {0, 1040, 1053, 1077, 1152, 1158, 1159, 1160, 1161, 1184, 1203, 1927, 2002, 2003, 2006, 2013, 2055, 4031}
)
"""Ended sessions, servers that stop, and network failures."""
_READ_ONLY = frozenset({1290, 1836})
_ENTRY = {
    1044: "GRANT the user its rights on the database.",
    1045: "Correct user and password in the URL.",
    1049: "Create it, or correct the URL.",
    1130: "Let the server admit this user from this machine.",
    1698: "Use a user with a password.",
    1820: "Set a new password for the user, and correct the URL.",
    1862: "Set a new password for the user, and correct the URL.",
    3118: "Unlock the account of the user.",
    3159: "Add ?ssl_mode=required to the URL.",
}
"""Remedies for refused logins, which fail at every try."""
_INDEX = re.compile(r"for key '(?:.*\.)?([^']*)'\Z")
_VALUES = re.compile(r"(entry|value:?) '.*' for", re.DOTALL)
_PARTITIONED = re.compile(r"(partition for (?:a|the given)? ?value) .*\Z", re.DOTALL)


def connection_lost(point: str) -> pymysql.err.Error:
    """Return the error that PyMySQL would raise at a fault point if the connection broke."""
    return pymysql.err.OperationalError(CR.CR_SERVER_LOST, f"Lost connection to MySQL server during query ({point})")


def code_of(cause: pymysql.err.Error) -> int:
    """Return the error's number, 0 if it has none."""
    return cause.args[0] if cause.args and isinstance(cause.args[0], int) else 0


def reason_of(cause: pymysql.err.Error) -> str:
    """Return the server's own message, without the values of rows that it would show."""
    reason = str(cause.args[1]) if len(cause.args) > 1 and cause.args[1] else "the connection is closed"
    return without_values(reason)


@contextmanager
def without_view() -> Iterator[None]:
    """Ignore a failure to create a view for people where the server or the user's privileges do not allow it."""
    try:
        yield
    except pymysql.err.Error as cause:
        if code_of(cause) not in _NO_VIEW:
            raise


def index_of(cause: pymysql.err.Error) -> str | None:
    """Return the index that a duplicate-key error names, without the table's name that MySQL puts before it."""
    found = _INDEX.search(reason_of(cause))
    return found[1] if found else None


def without_values(reason: str) -> str:
    """Return a message of the server without the values of rows in it."""
    return " ".join(_PARTITIONED.sub(r"\1", _VALUES.sub(r"\1 for", reason)).split()).rstrip(".")


def translate_error(cause: pymysql.err.Error, place: str, kind: type[Failed]) -> PenstockError | Conflict:
    """Return Penstock's error for an error before COMMIT, when nothing was written."""
    code, error = code_of(cause), ServerError(place=place, reason=reason_of(cause), kind=kind)
    if code in _CONFLICTS:
        return Conflict(error.reason)
    if code in _ENTRY:
        return error.not_let_in(_ENTRY[code])
    if code in _UNAVAILABLE and is_untrusted_certificate(error.reason):
        return error.not_let_in(UNTRUSTED_CERTIFICATE)
    return next((meaning(error) for codes, meaning in _MEANINGS if code in codes), error.unusable())


_MEANINGS: tuple[tuple[frozenset[int], Callable[[ServerError], PenstockError]], ...] = (
    (_LOCKED, lambda error: error.locked("information_schema.innodb_trx")),
    (_READ_ONLY, lambda error: error.read_only("primary server")),
    (_UNAVAILABLE, ServerError.no_answer),
    (_FULL, ServerError.full),
    (CONSTRAINTS, ServerError.refused_row),
    (UNPARTITIONED, lambda error: error.refused_row(_PARTITION)),
    (_FORBIDDEN, ServerError.forbidden),
    (frozenset({ABSENT_TABLE}), ServerError.no_table),
)
