"""Sessions of a driver as the sink uses them: one that writes, others that look, and what their errors mean."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from penstock.errors import Conflict, Failed, PenstockError, PublishFailed, Retryable
from penstock.sink.dbapi.driver import Driver, Session
from penstock.sink.dbapi.sql import Sql
from penstock.sink.dbapi.statements import INSERT, INSERT_OR_ABORT, IS_SQLITE, QUOTES, TableStatements, is_there
from penstock.support.connection import ReusedConnection
from penstock.support.secret import scrub


class Database(ReusedConnection):
    """The database behind one driver. Not thread-safe by itself."""

    def __init__(self, driver: Driver, connect: Mapping[str, Any]) -> None:
        self.driver, self._connect = driver, connect
        self.place = f"the database behind {driver.name}"
        self._session: Session | None = None

    def writable(self, kind: type[Failed] = PublishFailed) -> Session:
        if self._session is None:
            with self.translate_errors(kind):
                self._session = self.driver.open(self._connect)
        return self._session

    def drop(self) -> None:
        if self._session is not None:
            session, self._session = self._session, None
            with suppress(self.driver.error):
                session.rollback()
            session.close()

    @contextmanager
    def reader(self) -> Iterator[Session]:
        """Open a separate session, which is rolled back at the end."""
        with self.translate_errors(Failed):
            session = self.driver.open(self._connect)
            try:
                yield session
            finally:
                with suppress(self.driver.error):
                    session.rollback()
                session.close()

    @contextmanager
    def translate_errors(self, kind: type[Failed] = PublishFailed, *, runs_again: bool = False) -> Iterator[None]:
        """Raise the driver's errors as Retryable or `kind`. If the caller `runs_again`, a refused row is a Conflict."""
        try:
            yield
        except PenstockError:
            raise
        except self.driver.refused as refused:
            if runs_again:
                raise Conflict(_line(refused)) from refused
            raise kind(
                f"The table refused a row: {_line(refused)}.", remedy="Mend the table; what was decided is published then."
            ) from refused
        except self.driver.passing as passing:
            raise Retryable(
                f"{self.place} said: {_line(passing)}.".capitalize(), remedy="Look at the database and try again."
            ) from passing
        except self.driver.error as cause:
            raise kind(
                f"{self.place} said: {_line(cause)}.".capitalize(), remedy="Mend that; what was decided is published then."
            ) from cause


def connection_lost(point: str) -> Retryable:
    """Return the error at a fault point where the driver fails: no two drivers share an error to raise."""
    return Retryable(f"The driver failed at {point}.", remedy="Try again.")


def has(session: Session, query: Sql) -> bool:
    """Return whether a query runs without an error. End the transaction."""
    try:
        session.execute(query).fetchall()
    except session.driver.error:
        return False
    finally:
        session.rollback()
    return True


def quotes_of(session: Session, table: str) -> tuple[str, str] | None:
    """Return how names are quoted, found by trying it on `table`; None if there is no such table."""
    for quotes in QUOTES:
        if has(session, is_there(TableStatements(table, (), (), quotes).name)):
            return quotes
    return None


def inserts_of(session: Session) -> str:
    """Return the words of an INSERT for which a conflict is an error. End the transaction."""
    return INSERT_OR_ABORT if has(session, IS_SQLITE) else INSERT


def _line(cause: Exception) -> str:
    reason = next((line.strip() for line in str(cause).splitlines() if line.strip()), type(cause).__name__)
    return scrub(reason).rstrip(".")
