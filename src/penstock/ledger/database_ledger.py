"""A ledger in a table of a database on a server: one transaction is one append, whatever the database.

Pipeline and position are the primary key: an insert waits for whoever inserts the same key. A sink in the same database commits
its rows in the ledger's transaction. Nothing is created by reading, and nothing of a session is needed from one transaction
to the next but its settings. Each statement sees what was committed before it began (`READ COMMITTED`).
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager
from threading import RLock
from typing import Any, Generic, TypeVar

from penstock.core.codec import encode_entry
from penstock.core.model import Entry, PipelineName, Position
from penstock.errors import Failed, PositionTaken, Retryable
from penstock.ledger.database import LedgerDatabase, LedgerStatements, Session
from penstock.ledger.database_self_test import prefix_of, prove_writers
from penstock.ledger.newest_first import newest_first, require_tail_kept
from penstock.ledger.ownership import gap, own_entry, require_pipeline
from penstock.protocols import Within

C = TypeVar("C", bound=Session)


class ServedLedger(ABC, Generic[C]):
    """A `Ledger` in the table `penstock_ledger`, which holds those of other pipelines, too.

    Safe to use from several threads: one connection, one call at a time. Waits as long as the database says for another session
    that holds the same position, then raises Retryable. A connection on which anything failed is dropped.
    """

    def __init__(
        self, database: LedgerDatabase[C], statements: LedgerStatements, *, pipeline: PipelineName, location: str
    ) -> None:
        self._database = database
        self._sql = statements
        self._pipeline = pipeline
        self._location = location
        self._lock = RLock()
        self._checked: C | None = None

    # --- what kinds of databases differ in

    @abstractmethod
    def _fetch(self, connection: C, statement: Any, values: tuple[str | int, ...]) -> tuple[int, str] | None:
        """The first row of a query, None also where there is no table."""

    @abstractmethod
    def _put(self, connection: C, pipeline: str, position: int, text: str) -> bool:
        """Insert a row, after waiting for whoever inserts one at the same place; False if that is taken."""

    @abstractmethod
    def _require_table(self, connection: C) -> None:
        """Create the table where it is missing. Raises LedgerMismatch, GuaranteeTooWeak for one that would lose entries."""

    @abstractmethod
    def _commit(self, connection: C) -> None:
        """End the transaction. Raises the client's errors, Retryable, Failed."""

    @abstractmethod
    def _settling(self) -> AbstractContextManager[None]:
        """Around a COMMIT: raises OutcomeUnknown where it gave no answer."""

    @abstractmethod
    def _inserting(self) -> AbstractContextManager[None]:
        """The fault point around inserting an entry."""

    @abstractmethod
    def _committing(self) -> AbstractContextManager[None]:
        """The fault point around the COMMIT of one."""

    @abstractmethod
    def _pruning(self) -> AbstractContextManager[None]:
        """The fault point around deleting old ones."""

    # --- as `Ledger`

    @property
    def location(self) -> str:
        """Server and database."""
        return self._location

    @property
    def home(self) -> str | None:
        """The database's, which is also that of a sink there. `within` gets the database's connection."""
        return self._database.home

    def tail(self) -> Entry | None:
        """As `Ledger.tail`: one look at the end of the primary key."""
        return self._select(self._sql.tail, self._pipeline)

    def read(self, position: Position) -> Entry | None:
        return self._select(self._sql.at, self._pipeline, position)

    def append(self, entry: Entry, *, within: Within | None = None) -> None:
        """As `Ledger.append`. What `within` raises is raised on, and nothing is written."""
        require_pipeline(entry.pipeline, pipeline=self._pipeline, location=self.location)
        with self._lock, self._database.dropping_on_error():
            connection = self._writable()
            with self._database.translate_errors(Failed), self._inserting():
                self._database.begin(connection)
                self._insert(connection, entry)
            if within is not None:
                within(connection)
            with self._settling(), self._committing():
                self._commit(connection)

    def newest_first(self) -> Iterator[Entry]:
        """As `Ledger.newest_first`: one look per entry, so that no transaction is open between them."""
        return newest_first(self)

    def prove(self) -> None:
        """As `Ledger.prove`: a server that keeps what it commits, a table with its key, racing writers."""
        with self._lock, self._database.dropping_on_error(), self._database.translate_errors(Failed):
            self._writable()
            tail = self.tail()
            after = 0 if tail is None else tail.position
            prove_writers(self._database, self._sql, self._put, pipeline=self._pipeline, after=after, location=self.location)

    def prune(self, *, below: Position) -> None:
        """As `Ledger.prune`. A pruned position stays taken because the tail stays. Raises ValueError if it would not."""
        with self._lock, self._database.dropping_on_error():
            tail = self.tail()
            require_tail_kept(tail, below=below)
            connection = self._writable()
            with self._database.translate_errors(Failed), self._pruning():
                self._database.begin(connection)
                connection.execute(self._sql.prune, (self._pipeline, below))
                connection.execute(self._sql.prune_proofs, {"prefix": prefix_of(self._pipeline), "below": below})
                self._commit(connection)

    def close(self) -> None:
        """Close the connection; the next call opens another."""
        with self._lock:
            self._database.drop()

    # --- reading and writing

    def _select(self, statement: Any, *values: str | int) -> Entry | None:
        with self._lock:
            stood_idle = self._database.is_connected
            try:
                row = self._look(statement, values)
            except Retryable:
                if not stood_idle:
                    raise
                row = self._look(statement, values)  # the connection was gone, and nobody had noticed
        if row is None:
            return None
        position, text = row
        return own_entry(text.encode(), pipeline=self._pipeline, position=position, location=self.location)

    def _look(self, statement: Any, values: tuple[str | int, ...]) -> tuple[int, str] | None:
        with self._database.dropping_on_error(), self._database.translate_errors(Failed):
            return self._fetch(self._database.connected(Failed), statement, values)

    def _insert(self, connection: C, entry: Entry) -> None:
        """Looks after the insert: from then on nobody takes the position, so what it finds stays true until the COMMIT."""
        if not self._put(connection, self._pipeline, entry.position, encode_entry(entry).decode("ascii")):
            raise PositionTaken
        newest = [position for (position,) in connection.execute(self._sql.newest_positions, (self._pipeline,)).fetchall()]
        if newest[0] != entry.position:  # it was taken once, and pruned
            raise PositionTaken
        if entry.position > 1 and newest[1:] != [entry.position - 1]:
            raise gap(entry, location=self.location)

    def _writable(self) -> C:
        connection = self._database.writable(Failed)
        if self._checked is not connection:
            with self._database.translate_errors(Failed):
                self._require_table(connection)
            self._checked = connection
        return connection
