"""Failures of a store, classified, and the Penstock error for each."""

import re
from dataclasses import dataclass
from enum import Enum

from penstock.errors import Failed, OutcomeUnknown, PenstockError, Retryable
from penstock.support.connection import is_untrusted_certificate
from penstock.support.secret import scrub

_QUERY = re.compile(r"(?<=\S)\?\w[\w.~%+&=/;,@!$*-]*")
"""The query of a request's URL: long, useless to people, and some clients write credentials there."""
_AGAIN = "Try again; if it stays so, look at the network, the account's URL and its options."


class _Kind(Enum):
    CREDENTIALS = "credentials"
    MISSING = "missing"
    UNCHANGED = "unchanged"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class StoreFailure:
    """A client library's exception in one of four kinds; `reason` is its own text."""

    kind: _Kind
    reason: str

    @staticmethod
    def credentials(reason: str) -> "StoreFailure":
        """The store does not know the caller or denies access: nothing was changed."""
        return StoreFailure(_Kind.CREDENTIALS, reason)

    @staticmethod
    def missing(reason: str) -> "StoreFailure":
        """The bucket, container or file system does not exist."""
        return StoreFailure(_Kind.MISSING, reason)

    @staticmethod
    def unchanged(reason: str) -> "StoreFailure":
        """The store was not reached, or asked to retry later: nothing was changed."""
        return StoreFailure(_Kind.UNCHANGED, reason)

    @staticmethod
    def unknown(reason: str) -> "StoreFailure":
        """Anything else: an answer that was lost or makes no sense."""
        return StoreFailure(_Kind.UNKNOWN, reason)


def error_for(failure: StoreFailure, *, act: str, where: str, changes: bool) -> PenstockError:
    """Return the error for a failed attempt to `act` on `where`. `changes`: the operation was to change something."""
    message = f"Could not {act} {where}: {scrub(_QUERY.sub('', failure.reason)).rstrip('.')}."
    if is_untrusted_certificate(failure.reason):
        return Failed(
            message,
            remedy="Have this machine trust the authority that signed the store's certificate, or correct the store's address "
            "in the options, then start again: what was decided is not lost.",
        )
    if failure.kind is _Kind.CREDENTIALS:
        return Failed(
            message,
            remedy="Renew or correct the account's credentials and permissions, then start again: what was decided is not lost.",
        )
    if failure.kind is _Kind.MISSING:
        return Failed(message, remedy="Create the bucket or container, or correct the account's URL, then start again.")
    if failure.kind is _Kind.UNKNOWN and changes:
        return OutcomeUnknown(message, remedy="Try again: the store is looked at first.")
    return Retryable(message, remedy=_AGAIN)
