"""Sessions of a driver as the sink uses them: one that writes, others that read; their errors, and the marker store."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from penstock.core.faults import FaultPoint
from penstock.core.model import PipelineName, SinkName
from penstock.errors import Conflict, Failed, PenstockError, PublishFailed, Retryable
from penstock.sink.dbapi.driver import Driver, Session
from penstock.sink.dbapi.statements import (
    HAS_LEDGER_ID,
    INSERT,
    INSERT_OR_ABORT,
    IS_SQLITE,
    OWN,
    QUOTES,
    TableStatements,
    is_there,
    statement,
)
from penstock.sink.table.marker import TableMarker, marker_values
from penstock.sink.table.marker_store import DatabaseMarkerStore
from penstock.sql.session import Connections
from penstock.support.secret import scrub

FENCE = FaultPoint("dbapi.fence", "The row of the marker is locked by writing to it.")
MARK = FaultPoint("dbapi.mark", "The marker is set to the batch, in the transaction of its rows.")


class Database(Connections[Session]):
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
        answer = f"The database behind {self.driver.name} reported"
        try:
            yield
        except PenstockError:
            raise
        except self.driver.refused as refused:
            if runs_again:
                raise Conflict(reason_of(refused)) from refused
            raise kind(
                f"The table refused a row: {reason_of(refused)}.", remedy="Mend the table; what was decided is published then."
            ) from refused
        except self.driver.error as cause:
            if isinstance(cause, self.driver.passing) or _LOCKED in str(cause):
                raise Retryable(f"{answer}: {reason_of(cause)}.", remedy="Look at the database and try again.") from cause
            raise kind(f"{answer}: {reason_of(cause)}.", remedy="Mend the cause; what was decided is published then.") from cause


_LOCKED = "database is locked"
"""SQLite's words. ADBC takes them for a mistake in the statement where it prepares one."""


def connection_lost(point: str) -> Retryable:
    """Return the error at a fault point where the driver fails: no two drivers share an error to raise."""
    return Retryable(f"The driver failed at {point}.", remedy="Try again.")


class DbapiMarkerStore(DatabaseMarkerStore):
    """The markers behind any driver, in one transaction."""

    def __init__(self, session: Session, *, locking: bool, has_ledger_id: bool = True) -> None:
        super().__init__(
            lambda text, values: session.execute(statement(text), values),
            OWN,
            locking=locking,
            has_ledger_id=has_ledger_id,
            split_name=_folded,
            fencing=partial(FENCE.around, error=connection_lost, lost=connection_lost),
            marking=partial(MARK.around, error=connection_lost, lost=connection_lost),
        )
        self._exists = False

    def read(self, pipeline: PipelineName, sink: SinkName) -> TableMarker | None:
        marker = super().read(pipeline, sink)
        self._exists = marker is not None
        return marker

    def write(self, marker: TableMarker) -> None:
        """Update the marker's row if `read` found one, else insert it."""
        self._execute(OWN.write_marker if self._exists else OWN.make_marker, marker_values(marker))
        self._exists = True


def marker_store_of(session: Session, *, locking: bool) -> DbapiMarkerStore:
    """Return the markers, also where an older Penstock created their table."""
    return DbapiMarkerStore(session, locking=locking, has_ledger_id=has(session, HAS_LEDGER_ID))


def _folded(name: str) -> tuple[str, str]:
    """Return the name in lower case: whether case counts is unknown, so a table that may be another sink's is taken for it."""
    return "", name.lower()


def has(session: Session, query: str) -> bool:
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
        if has(session, is_there(TableStatements("", table, (), quotes=quotes).name)):
            return quotes
    return None


def inserts_of(session: Session) -> str:
    """Return the words of an INSERT for which a conflict is an error. End the transaction."""
    return INSERT_OR_ABORT if has(session, IS_SQLITE) else INSERT


def reason_of(cause: Exception) -> str:
    """Return the first line of the driver's message without passwords: further ones often show values of rows."""
    reason = next((line.strip() for line in str(cause).splitlines() if line.strip()), type(cause).__name__)
    return scrub(reason).rstrip(".")
