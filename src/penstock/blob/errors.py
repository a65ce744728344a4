"""Failures of a store, classified, and the Penstock error for each."""

import re
from enum import Enum

from penstock.errors import Failed, OutcomeUnknown, PenstockError, Retryable
from penstock.support.connection import is_untrusted_certificate
from penstock.support.secret import scrub

_QUERY = re.compile(r"(?<=\S)\?\w[\w.~%+&=/;,@!$*-]*")
"""The query of a request's URL: long, useless to people, and some clients write credentials there."""


class Failure(Enum):
    """What a client library's exception says of the request."""

    CREDENTIALS = "the store does not know the caller or denies access: nothing was changed"
    MISSING = "the bucket, container or file system does not exist"
    UNCHANGED = "the store was not reached, or asked to retry later: nothing was changed"
    UNKNOWN = "anything else: an answer that was lost or makes no sense"


def error_for(failure: Failure, reason: str, *, act: str, where: str, changes: bool) -> PenstockError:
    """Return the error for a failed attempt to `act` on `where`. `changes`: the operation was to change something.

    `reason` is the client library's own text.
    """
    message = f"Could not {act} {where}: {scrub(_QUERY.sub('', reason)).rstrip('.')}."
    if is_untrusted_certificate(reason):
        return Failed(
            message,
            remedy="Have this machine trust the authority that signed the store's certificate, or correct the store's address "
            "in the options, then start again: what was decided is not lost.",
        )
    if failure is Failure.CREDENTIALS:
        return Failed(
            message,
            remedy="Renew or correct the account's credentials and permissions, then start again: what was decided is not lost.",
        )
    if failure is Failure.MISSING:
        return Failed(message, remedy="Create the bucket or container, or correct the account's URL, then start again.")
    if failure is Failure.UNKNOWN and changes:
        return OutcomeUnknown(message, remedy="Try again: the store is looked at first.")
    return Retryable(message, remedy="Try again; if it stays so, look at the network, the account's URL and its options.")
