"""Translation of PostgreSQL's errors into Penstock's. Messages name the server and never the password."""

import psycopg

from penstock.errors import Conflict, Failed, PenstockError, Retryable
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
_CONFLICTS = frozenset({"40001", "40P01"})
_STARTS = "and start again: what was decided is published then."


def translate_error(cause: psycopg.Error, place: str, kind: type[Failed]) -> PenstockError | Conflict:
    """Return Penstock's error for an error before COMMIT, when nothing was written."""
    state, reason = code_of(cause), reason_of(cause)
    if state in _CONFLICTS:
        return Conflict(reason)
    if not state and isinstance(cause, psycopg.OperationalError | psycopg.InterfaceError):
        return _unconnected(reason, place, kind)
    if cause.diag.source_function == _FINDS_PARTITION:
        return _without_partition(cause, place, reason, kind)
    for sign, make in _BY_SQLSTATE:
        if state.startswith(sign):
            return make(place, reason, kind)
    return kind(f"{place} cannot be used: {reason}.", remedy=f"Mend that {_STARTS}")


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


def _unconnected(reason: str, place: str, kind: type[Failed]) -> PenstockError:
    for sign, remedy in _WRONG_ADDRESS:
        if sign in reason:
            return kind(f"{place} does not let us in: {reason}.", remedy=remedy)
    return _no_answer(place, reason, kind)


def _no_answer(place: str, reason: str, _: type[Failed]) -> PenstockError:
    return Retryable(f"{place} does not answer: {reason}.", remedy="Start the server or mend the network, and try again.")


def _locked(place: str, reason: str, _: type[Failed]) -> PenstockError:
    message = f"Another session holds a lock in {place} that is needed: {reason}."
    return Retryable(message, remedy="Look into pg_locks, and try again.")


def _full(place: str, reason: str, kind: type[Failed]) -> PenstockError:
    return kind(f"The disk of {place} is full: {reason}.", remedy=f"Make room {_STARTS}")


def _constraint(place: str, reason: str, kind: type[Failed]) -> PenstockError:
    remedy = f"Drop the constraint or correct the table's rows, {_STARTS}"
    return kind(f"The table in {place} refused a row: {reason}.", remedy=remedy)


def _without_partition(cause: psycopg.Error, place: str, reason: str, kind: type[Failed]) -> PenstockError:
    """Return the error for a missing partition. It names the table that lacks it, which may be a partition itself."""
    table = in_double_quotes(cause.diag.schema_name or "", cause.diag.table_name or "")
    remedy = f"Create the partition that a row lacks, by CREATE TABLE … PARTITION OF {table} FOR VALUES …, {_STARTS}"
    return kind(f"The table in {place} refused a row: {reason}.", remedy=remedy)


def _forbidden(place: str, reason: str, kind: type[Failed]) -> PenstockError:
    remedy = _SEE_ALL if "row-level security" in reason else "GRANT it"
    return kind(f"The role may not do that in {place}: {reason}.", remedy=f"{remedy} {_STARTS}")


_SEE_ALL = "ALTER ROLE … BYPASSRLS, or ALTER TABLE … DISABLE ROW LEVEL SECURITY (and NO FORCE ROW LEVEL SECURITY),"
_BY_SQLSTATE = (
    ("55P03", _locked),
    ("53100", _full),
    ("23", _constraint),
    (FORBIDDEN, _forbidden),
    *((state, _no_answer) for state in ("08", "53", "57", "25P")),
)
"""By SQLSTATE code or class of codes; the first match counts."""
