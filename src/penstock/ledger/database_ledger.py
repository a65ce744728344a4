"""A ledger in a table on a database server, for any database: one append is one transaction.

Pipeline and position are the primary key: an insert waits for a concurrent insert of the same key. A sink in the same database
commits its rows in the ledger's transaction. Reading creates nothing. From one transaction to the next, nothing of the session is
needed but its settings. Each statement sees what was committed before it began (`READ COMMITTED`).
"""

from abc import abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from threading import RLock
from typing import Any, Generic, TypeVar

from penstock.core.codec import encode_entry
from penstock.core.model import Entry, PipelineName, Position
from penstock.errors import Failed, LedgerMismatch, PositionTaken, Retryable
from penstock.ledger.base_ledger import BaseLedger, require_tail_kept
from penstock.ledger.database import LEDGER_TABLE, LedgerDatabase, LedgerStatements, Session
from penstock.ledger.database_self_test import prefix_of, prove_writers
from penstock.protocols import InTransaction

C = TypeVar("C", bound=Session)


class DatabaseLedger(BaseLedger, Generic[C]):
    """A `Ledger` in the table `penstock_ledger`, which also holds other pipelines' ledgers.

    Thread-safe: one connection, one call at a time. Waits for another session that is writing the same position as long as the
    database allows, then raises Retryable. A connection on which anything failed is dropped.
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
        """Return the first row of a query, None if there is none or no table."""

    @abstractmethod
    def _put(self, connection: C, pipeline: str, position: int, text: str) -> bool:
        """Insert a row, after waiting for a concurrent insert at the same position. False if the position is taken."""

    @abstractmethod
    def _require_table(self, connection: C) -> None:
        """Create the table if it is missing. Raises LedgerMismatch, and GuaranteeTooWeak for a table that would lose entries."""

    @abstractmethod
    def _commit(self, connection: C) -> None:
        """Commit the transaction. Raises the client's errors, Retryable, Failed."""

    @abstractmethod
    def _settling(self) -> AbstractContextManager[None]:
        """Surround a COMMIT. Raises OutcomeUnknown if the answer was lost."""

    _inserting: Callable[[], AbstractContextManager[None]]
    _committing: Callable[[], AbstractContextManager[None]]
    _pruning: Callable[[], AbstractContextManager[None]]
    """The fault points around an entry's insert and COMMIT, and around the deletion of old ones."""

    # --- as `Ledger`

    @property
    def location(self) -> str:
        return self._location

    @property
    def home(self) -> str | None:
        """The home of the database, which a sink in it has, too. `within` gets the database's connection."""
        return self._database.home

    def tail(self) -> Entry | None:
        return self._select(self._sql.tail, self._pipeline)

    def read(self, position: Position) -> Entry | None:
        return self._select(self._sql.at, self._pipeline, position)

    def append(self, entry: Entry, *, within: InTransaction | None = None) -> None:
        """An exception of `within` is raised unchanged, and nothing is written."""
        self._require_pipeline(entry.pipeline)
        with self._lock, self._database.dropping_on_error():
            connection = self._writable()
            with self._database.translate_errors(Failed), self._inserting():
                self._database.begin(connection)
                self._insert(connection, entry)  # I7: the position is the primary key
            if within is not None:
                within(connection)
            with self._settling(), self._committing():
                self._commit(connection)

    def prove(self) -> None:
        """Requires a server that persists what it commits, a table with its key, and exactly one winner among racing writers."""
        with self._lock, self._database.dropping_on_error(), self._database.translate_errors(Failed):
            self._writable()
            tail = self.tail()
            after = 0 if tail is None else tail.position
            prove_writers(self._database, self._sql, self._put, pipeline=self._pipeline, after=after, location=self.location)

    def prune(self, *, below: Position) -> None:
        """Raises ValueError if the tail would be pruned: while it stays, a pruned position counts as taken."""
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
                row = self._look(statement, values)  # the idle connection had broken unnoticed
        return None if row is None else self._decode(row[1].encode(), row[0])

    def _look(self, statement: Any, values: tuple[str | int, ...]) -> tuple[int, str] | None:
        with self._database.dropping_on_error(), self._database.translate_errors(Failed):
            return self._fetch(self._database.connected(Failed), statement, values)

    def _insert(self, connection: C, entry: Entry) -> None:
        """Look only after the insert: from then on nobody can take the position, so the result stays true until the COMMIT."""
        if not self._put(connection, self._pipeline, entry.position, encode_entry(entry).decode("ascii")):
            raise PositionTaken
        newest = [position for (position,) in connection.execute(self._sql.newest_positions, (self._pipeline,)).fetchall()]
        if newest[0] != entry.position:  # the position was taken before, and pruned
            raise PositionTaken
        if entry.position > 1 and newest[1:] != [entry.position - 1]:
            raise self._gap(entry)

    def _writable(self) -> C:
        connection = self._database.writable(Failed)
        if self._checked is not connection:
            with self._database.translate_errors(Failed):
                self._require_table(connection)
            self._checked = connection
        return connection

    def _no_ledger_table(self) -> LedgerMismatch:
        return LedgerMismatch(
            f"{LEDGER_TABLE} of the ledger {self.location} is no table with the primary key (pipeline, position).",
            remedy="Restore the table from a backup, with its key.",
        )
