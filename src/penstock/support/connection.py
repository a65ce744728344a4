"""A connection that is held open between uses, and never used again after anything failed on it."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from penstock.errors import Conflict, Failed, PenstockError, PublishFailed, Retryable


class ReusedConnection(ABC):
    """Holds one connection. What was written through it, read by a new one, says what happened."""

    @abstractmethod
    def drop(self) -> None:
        """Close, which rolls back what is open."""

    @contextmanager
    def dropping_on_error(self) -> Iterator[None]:
        """Never use a connection again on which something failed."""
        try:
            yield
        except BaseException:
            self.drop()
            raise


class ServerConnection(ReusedConnection):
    """As `ReusedConnection`, to the server at `place`, whose client raises `errors`."""

    place: str
    errors: type[Exception] | tuple[type[Exception], ...]

    @abstractmethod
    def _translate_error(self, cause: Any, kind: type[Failed]) -> PenstockError | Conflict:
        """What one of these errors means before a COMMIT: nothing was written."""

    @contextmanager
    def translate_errors(self, kind: type[Failed] = PublishFailed, *, runs_again: bool = False) -> Iterator[None]:
        """Raise the client's errors as Retryable or as `kind`; those of a caller that runs it again at once as Conflict."""
        try:
            yield
        except self.errors as cause:
            translated = self._translate_error(cause, kind)
            if isinstance(translated, Conflict) and not runs_again:
                raise Retryable(f"{self.place} rolled back: {translated}.", remedy="Try again.") from cause
            raise translated from cause
