"""A connection that is held open between uses, and never used again after anything failed on it."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from penstock.errors import Conflict, Failed, PenstockError, PublishFailed, Retryable


class Held(ABC):
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


class HeldToServer(Held):
    """As `Held`, to the server at `place`, whose client raises `errors`."""

    place: str
    errors: type[Exception] | tuple[type[Exception], ...]

    @abstractmethod
    def _trouble(self, cause: Any, kind: type[Failed]) -> PenstockError | Conflict:
        """What one of these errors means before a COMMIT: nothing was written."""

    @contextmanager
    def told(self, kind: type[Failed] = PublishFailed, *, runs_again: bool = False) -> Iterator[None]:
        """Raise the client's errors as Retryable or as `kind`; those of a caller that runs it again at once as Conflict."""
        try:
            yield
        except self.errors as cause:
            told = self._trouble(cause, kind)
            if isinstance(told, Conflict) and not runs_again:
                raise Retryable(f"{self.place} rolled back: {told}.", remedy="Try again.") from cause
            raise told from cause
