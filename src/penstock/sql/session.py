"""Sessions of a database driver: one that publishes and stays open, others that only read, and what a failed COMMIT means."""

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Generic, Protocol, TypeVar

from penstock.errors import Conflict, Failed, OutcomeUnknown, PenstockError, PublishFailed
from penstock.support.connection import ReusedConnection, ServerConnection

LOCK_TIMEOUT_S = 30.0


class Session(Protocol):
    """A connection as a driver opens it."""

    def close(self) -> None:
        """End the session, which rolls back its open transaction."""
        ...


S = TypeVar("S", bound=Session)


@contextmanager
def closed_on_error(session: S) -> Iterator[S]:
    """Close a session that is being set up if the body raises: nobody else has it yet."""
    try:
        yield session
    except BaseException:
        session.close()
        raise


class Connections(ReusedConnection, Generic[S]):
    """The connections to a database: one that publishes, others that only read. Not thread-safe.

    After an error the connection is dropped: the marker, read over a new one, shows what happened.
    """

    place: str

    @abstractmethod
    def writable(self, kind: type[Failed] = PublishFailed) -> S:
        """Return the open connection, or a new one to a database that commits durably. Raise Retryable, `kind`, Refused."""

    @abstractmethod
    def reader(self) -> AbstractContextManager[S]:
        """Open a separate connection that cannot write and sees one snapshot."""

    @abstractmethod
    def translate_errors(self, kind: type[Failed] = PublishFailed, *, runs_again: bool = False) -> AbstractContextManager[None]:
        """Raise the driver's errors as Retryable or `kind`, or conflicts as Conflict if the caller `runs_again` at once."""


class SqlDatabase(ServerConnection, Connections[S]):
    """The connections to a database with transactions."""

    @abstractmethod
    def begin(self, connection: S) -> None:
        """Begin a transaction that commits durably, and whose lock waits are bounded."""

    @abstractmethod
    def commit(self, connection: S) -> None:
        """Commit, within `unknown_if_cut` where rows were published. Raise if the transaction has ended by itself."""

    @abstractmethod
    def _conflict_in(self, cause: Any) -> Conflict | None:
        """Return the conflict if an error of COMMIT states that the database rolled back because of another transaction."""

    @abstractmethod
    def _diagnose(self, cause: Any) -> tuple[str, str]:
        """Return what went wrong with a COMMIT, and what to do about it."""

    @contextmanager
    def unknown_if_cut(self, what: str, *, read: str) -> Iterator[None]:
        """Raise Conflict for a COMMIT of `what` that was rolled back, OutcomeUnknown for one without an answer.

        `read` names in the message what shows, over a new connection, whether the COMMIT happened.
        """
        try:
            yield
        except self.errors as cause:
            if conflict := self._conflict_in(cause):
                raise conflict from cause
            reason, advice = self._diagnose(cause)
            raise OutcomeUnknown(  # I12
                f"The COMMIT of {what} in {self.place} gave no answer: {reason}.",
                remedy=f"{advice}: {read} in the database says whether it happened.",
            ) from cause


class Sessions(SqlDatabase[S]):
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
        with self.translate_errors(Failed):
            session = self._open()
            try:
                self._begin_reading(session)
                yield session
            finally:
                session.close()

    def _translate_error(self, cause: Any, kind: type[Failed]) -> PenstockError | Conflict:
        return self._error_at(cause, self.place, kind)

    def _conflict_in(self, cause: Any) -> Conflict | None:
        return Conflict(self._reason(cause)) if self._rolled_back(cause) else None

    def _diagnose(self, cause: Any) -> tuple[str, str]:
        return self._reason(cause), "Try again"
