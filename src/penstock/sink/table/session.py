"""Sessions of a database driver: one that publishes and stays open, others that only read, and what a failed COMMIT means."""

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar

from penstock.errors import Conflict, Failed, OutcomeUnknown, PublishFailed
from penstock.support.connection import ServerConnection

LOCK_TIMEOUT_S = 30.0


class Session(Protocol):
    """A connection as a driver opens it."""

    def close(self) -> None:
        """End the session, which rolls back its open transaction. Never raises: however it ends, it is over."""
        ...


S = TypeVar("S", bound=Session)


class Sessions(ServerConnection, Generic[S]):
    """A `ServedDatabase` over one driver, not thread-safe. `errors`: all that the driver raises. `place`: its name for people."""

    def __init__(self, *, place: str, errors: tuple[type[Exception], ...], lock_timeout_s: float) -> None:
        self.place, self.errors, self._lock_timeout_s = place, errors, lock_timeout_s
        self._session: S | None = None

    # --- what databases differ in

    @abstractmethod
    def _open(self) -> S:
        """Open a session whose transactions are begun explicitly. Raise the driver's errors."""

    @abstractmethod
    def _begin_reading(self, session: S) -> None:
        """Begin a transaction that sees one snapshot."""

    @abstractmethod
    def _require_durable(self, session: S) -> None:
        """Raise Refused for a server that cannot be written, or that could lose what it acknowledged."""

    @abstractmethod
    def _reason(self, cause: Exception) -> str:
        """Return the message of the server or the driver, in one line."""

    @abstractmethod
    def _rolled_back(self, cause: Exception) -> bool:
        """Return whether an error of COMMIT states that the server rolled back because of another transaction."""

    # --- as `ServedDatabase`

    def writable(self, kind: type[Failed] = PublishFailed) -> S:
        if self._session is None:
            with self.translate_errors(kind):
                self._session = self._durable()
        return self._session

    def _durable(self) -> S:
        session = self._open()
        try:
            self._require_durable(session)
        except BaseException:
            session.close()
            raise
        return session

    def drop(self) -> None:
        if self._session is not None:
            session, self._session = self._session, None
            session.close()

    @contextmanager
    def reader(self) -> Iterator[S]:
        with self.translate_errors(Failed):
            session = self._open()
            try:
                self._begin_reading(session)
                yield session
            finally:
                session.close()

    @contextmanager
    def unknown_if_cut(self, what: str, *, read: str) -> Iterator[None]:
        """Raise Conflict for a COMMIT of `what` that was rolled back, OutcomeUnknown for one without an answer.

        After OutcomeUnknown, `read`, in a new session, shows whether it happened.
        """
        try:
            yield
        except self.errors as cause:
            if self._rolled_back(cause):
                raise Conflict(self._reason(cause)) from cause
            raise OutcomeUnknown(
                f"The COMMIT of {what} in {self.place} gave no answer: {self._reason(cause)}.",
                remedy=f"Try again: {read} in the database says whether it happened.",
            ) from cause
