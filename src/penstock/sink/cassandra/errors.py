"""Translates errors of Cassandra and its driver. Messages name the nodes, and never the password or values of rows."""

import re
from collections.abc import Iterator

from cassandra import (
    AuthenticationFailed,
    DriverException,
    OperationTimedOut,
    RequestValidationException,
    Unauthorized,
    UnsupportedOperation,
)
from cassandra.cluster import NoHostAvailable
from cassandra.connection import ConnectionException
from cassandra.pool import NoConnectionsAvailable
from cassandra.protocol import ErrorMessage, ProtocolException, SyntaxException

from penstock.errors import Failed, OutcomeUnknown, PenstockError, Retryable
from penstock.sql.url import UNTRUSTED_CERTIFICATE
from penstock.support.connection import is_untrusted_certificate

DRIVER_ERRORS = (DriverException, NoHostAvailable, ErrorMessage, ConnectionException, NoConnectionsAvailable)
_TOO_LARGE = "Batch too large"
_STARTS = "and start again: what was decided is published then."
_NO_KEYSPACE = re.compile(r"[Kk]eyspace '?\"?([^'\" ]+)\"?'? does not exist")
_FINAL = (AuthenticationFailed, RequestValidationException, SyntaxException, ProtocolException, UnsupportedOperation)
"""Errors that repeat however often the request is sent; any other one may pass."""


def connection_lost(point: str) -> OperationTimedOut:
    """Return the exception that the driver raises where no answer comes."""
    return OperationTimedOut(errors=f"{point} was cut off")


def is_too_large(error: Exception) -> bool:
    """Return whether a batch of statements exceeded the server's limit."""
    return isinstance(error, RequestValidationException) and _TOO_LARGE in str(error)


def translate_error(cause: Exception, place: str, kind: type[Failed]) -> PenstockError:
    """Return Penstock's error for `cause`. A write that was not answered may have happened: it is written again."""
    final = next((error for error in _inner(cause) if isinstance(error, _FINAL) or is_untrusted_certificate(str(error))), None)
    if final is not None:
        message, remedy = _message_and_remedy(final, place)
        return kind(message, remedy=remedy)
    if isinstance(cause, NoHostAvailable):
        return Retryable(f"{place} does not answer: {reason_of(cause)}.", remedy="Start the cluster or mend the network.")
    return OutcomeUnknown(
        f"{place} did not confirm a request: {reason_of(cause)}.",
        remedy="Look into the logs of its nodes, and try again.",
    )


def reason_of(cause: Exception) -> str:
    """Return the driver's own message, in one line."""
    inner = list(_inner(cause))
    reason = str(inner[0] if inner else cause)
    if isinstance(cause, ErrorMessage):
        reason = str(cause.message)
    return " ".join(reason.split()).rstrip(".") or type(cause).__name__


def _inner(cause: Exception) -> Iterator[Exception]:
    """Return the errors of the single nodes, or `cause` alone."""
    by_node = cause.errors if isinstance(cause, NoHostAvailable) else {"": cause}
    errors = by_node.values() if isinstance(by_node, dict) else [cause]
    return (error for error in errors if isinstance(error, Exception))


def _message_and_remedy(cause: Exception, place: str) -> tuple[str, str]:
    reason = reason_of(cause)
    missing = _NO_KEYSPACE.search(reason)
    if missing:
        remedy = f"Create it: CREATE KEYSPACE {missing[1]} WITH replication = …; or correct the sink's `url`."
        return f"{place} has no such keyspace: {reason}.", remedy
    if is_untrusted_certificate(reason):
        return f"The login at {place} fails: {reason}.", UNTRUSTED_CERTIFICATE
    if isinstance(cause, AuthenticationFailed):
        return f"The login at {place} fails: {reason}.", "Correct user and password in the sink's `url`."
    if isinstance(cause, Unauthorized):
        return f"The user lacks a privilege in {place}: {reason}.", f"GRANT the privilege {_STARTS}"
    return f"{place} refuses: {reason}.", f"Mend the cause {_STARTS}"
