"""One session that publishes and is kept open, others that only read, and what the errors of a driver mean."""

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar

from penstock.errors import Conflict, Failed, OutcomeUnknown, PublishFailed
from penstock.support.connection import ServerConnection

LOCK_TIMEOUT_S = 30.0


class Session(Protocol):
    """A connection as a driver makes it."""

    def close(self) -> None:
        """End it, which rolls back what is open; however it ends, it is over."""
        ...


S = TypeVar("S", bound=Session)


class Sessions(ServerConnection, Generic[S]):
    """As `ServedDatabase`. Not thread-safe by itself. `errors`: all that the driver raises; `place`: the database, for people."""

    def __init__(self, *, place: str, errors: tuple[type[Exception], ...], lock_timeout_s: float) -> None:
        self.place, self.errors, self._lock_timeout_s = place, errors, lock_timeout_s
        self._session: S | None = None

    # --- what databases differ in

    @abstractmethod
    def _open(self) -> S:
        """A new session, whose transactions are begun explicitly. Raises the driver's errors."""

    @abstractmethod
    def _begin_reading(self, session: S) -> None:
        """Open a transaction that sees one snapshot."""

    @abstractmethod
    def _require_durable(self, session: S) -> None:
        """Raise Refused for a server that cannot be written, or that would lose what it acknowledged."""

    @abstractmethod
    def _reason(self, cause: Exception) -> str:
        """What the server or the driver says, in one line."""

    @abstractmethod
    def _rolled_back(self, cause: Exception) -> bool:
        """Whether an error of COMMIT is the server's word that it rolled back, because of another transaction."""

    # --- as `ServedDatabase`

    def writable(self, kind: type[Failed] = PublishFailed) -> S:
        """The open session, or a new one to a server that keeps what it commits. Raises Retryable, `kind`, Refused."""
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
        """Close, which rolls back what is open."""
        if self._session is not None:
            session, self._session = self._session, None
            session.close()

    @contextmanager
    def reader(self) -> Iterator[S]:
        """A session of its own that changes nothing and sees one snapshot."""
        with self.translate_errors(Failed):
            session = self._open()
            try:
                self._begin_reading(session)
                yield session
            finally:
                session.close()

    @contextmanager
    def unknown_if_cut(self, table: str) -> Iterator[None]:
        """Raise what a failed COMMIT means. After OutcomeUnknown, the marker on a new session says if it happened."""
        try:
            yield
        except self.errors as cause:
            if self._rolled_back(cause):
                raise Conflict(self._reason(cause)) from cause
            raise OutcomeUnknown(
                f"The COMMIT of table {table!r} in {self.place} gave no answer: {self._reason(cause)}.",
                remedy="Try again: the marker in the database says whether it happened.",
            ) from cause
