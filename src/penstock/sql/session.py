"""Sessions of a database driver: one that publishes and stays open, others that only read, and what a failed COMMIT means."""

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Generic, Protocol, TypeVar

from penstock.errors import Conflict, Failed, OutcomeUnknown, PenstockError, PublishFailed
from penstock.support.connection import ServerConnection

LOCK_TIMEOUT_S = 30.0


class Session(Protocol):
    """A connection as a driver opens it."""

    def close(self) -> None:
        """End the session, which rolls back its open transaction."""
        ...


S = TypeVar("S", bound=Session)


class Sessions(ServerConnection, Generic[S]):
    """A database over one driver, not thread-safe. `errors`: all that the driver raises. `place`: its name for people.

    `home`: what identifies a database in which a sink can join a ledger's transaction.
    """

    home: str | None = None

    def __init__(self, *, place: str, errors: type[Exception] | tuple[type[Exception], ...], lock_timeout_s: float) -> None:
        self.place, self.errors, self._lock_timeout_s = place, errors, lock_timeout_s
        self._session: S | None = None
        self._is_durable = False

    # --- what databases differ in

    @abstractmethod
    def _open(self) -> S:
        """Open a session whose transactions are begun explicitly. Raise the driver's errors."""

    def _open_publishing(self) -> S:
        """Open the session that publishes."""
        return self._open()

    @abstractmethod
    def begin(self, connection: S) -> None:
        """Begin a transaction that commits durably, and whose lock waits are bounded."""

    @abstractmethod
    def _begin_reading(self, session: S) -> None:
        """Begin a transaction that sees one snapshot."""

    @abstractmethod
    def _require_durable(self, session: S) -> None:
        """Raise Refused for a server that cannot be written, or that could lose what it acknowledged."""

    @staticmethod
    @abstractmethod
    def _error_at(cause: Any, place: str, kind: type[Failed], /) -> PenstockError | Conflict:
        """Return the error to raise for one of `errors` before a COMMIT: nothing was written."""

    @staticmethod
    @abstractmethod
    def _reason(cause: Any, /) -> str:
        """Return the message of the server or the driver, in one line."""

    @staticmethod
    def _rolled_back(cause: Exception, /) -> bool:  # noqa: ARG004 - for those whose COMMIT can be in conflict
        """Return whether an error of COMMIT states that the server rolled back because of another transaction."""
        return False

    # --- for sinks and ledgers

    @property
    def is_connected(self) -> bool:
        return self._session is not None

    def connected(self, kind: type[Failed] = PublishFailed) -> S:
        """Return the open session or a new one. Raise Retryable, `kind`."""
        if self._session is None:
            with self.translate_errors(kind):
                self._session = self._open_publishing()
        return self._session

    def writable(self, kind: type[Failed] = PublishFailed) -> S:
        """Return the open session or a new one, to a server that keeps what it commits. Raise Retryable, `kind`, Refused."""
        session = self.connected(kind)
        if not self._is_durable:
            with self.translate_errors(kind):
                self._require_durable(session)
            self._is_durable = True
        return session

    def drop(self) -> None:
        if self._session is not None:
            session, self._session, self._is_durable = self._session, None, False
            session.close()

    @contextmanager
    def reader(self) -> Iterator[S]:
        """Yield a session of its own that cannot write and sees one snapshot."""
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
            raise OutcomeUnknown(  # I12
                f"The COMMIT of {what} in {self.place} gave no answer: {self._reason(cause)}.",
                remedy=f"Try again: {read} in the database says whether it happened.",
            ) from cause

    def _translate_error(self, cause: Any, kind: type[Failed]) -> PenstockError | Conflict:
        return self._error_at(cause, self.place, kind)
