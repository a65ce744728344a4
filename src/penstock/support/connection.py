"""A connection that stays open between uses and is dropped after any failure, and what clients say of certificates."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from penstock.errors import Conflict, Failed, PenstockError, PublishFailed, Retryable


class ReusedConnection(ABC):
    """Holds one connection. After a failure, whoever needs to know what was written reads it through a new one."""

    @abstractmethod
    def drop(self) -> None:
        """Close the connection, which rolls back an open transaction."""

    @contextmanager
    def dropping_on_error(self) -> Iterator[None]:
        """Drop the connection on any exception, so that it is never used again."""
        try:
            yield
        except BaseException:
            self.drop()
            raise


class ServerConnection(ReusedConnection):
    """A `ReusedConnection` to the server or file at `place`, whose client raises `errors`."""

    place: str
    errors: type[Exception] | tuple[type[Exception], ...]

    @abstractmethod
    def _translate_error(self, cause: Any, kind: type[Failed]) -> PenstockError | Conflict:
        """Return the error to raise for one of `errors` before a COMMIT: nothing was written."""

    @contextmanager
    def translate_errors(self, kind: type[Failed] = PublishFailed, *, runs_again: bool = False) -> Iterator[None]:
        """Raise the client's errors as Retryable or `kind`; `runs_again`: the caller handles Conflict and repeats at once."""
        try:
            yield
        except self.errors as cause:
            translated = self._translate_error(cause, kind)
            if isinstance(translated, Conflict) and not runs_again:
                message = f"Another transaction was in the way in {self.place}: {translated}."
                raise Retryable(message, remedy="Try again.") from cause
            raise translated from cause


def is_untrusted_certificate(reason: str) -> bool:
    """Return whether a client's message is about an untrusted certificate.

    OpenSSL says so of a certificate of another host, of an unknown authority or out of date; most clients give no other reason.
    """
    return "CERTIFICATE_VERIFY_FAILED" in reason
