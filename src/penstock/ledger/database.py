"""A ledger in a table on a database server, for any database: one append is one transaction.

Pipeline and position are the primary key: an insert waits for a concurrent insert of the same key. A sink in the same database
commits its rows in the ledger's transaction. Reading creates nothing. Between transactions, nothing of the session is needed but
its settings. Each statement sees what was committed before it began (`READ COMMITTED`).

One table holds the ledgers of many pipelines. `entry` is text, so that its bytes stay as written.
"""

import json
from abc import abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from threading import RLock
from typing import Any, Generic, Protocol, TypeVar

from penstock.core.codec import encode_entry
from penstock.core.model import Entry, PipelineName, Position, new_nonce
from penstock.errors import Failed, LedgerMismatch, PositionTaken, Retryable
from penstock.ledger.base_ledger import BaseLedger, require_tail_kept
from penstock.ledger.self_test import ROUNDS, WRITERS, race, racing_threads
from penstock.protocols import InTransaction
from penstock.sql.session import Session, Sessions

LEDGER_TABLE = "penstock_ledger"
HISTORY_VIEW = "penstock_history"
"""A view for people and their programs; Penstock never reads it."""
KEY = frozenset({"pipeline", "position"})


class LedgerSession(Session, Protocol):
    """A connection. Outside a transaction, each statement is its own transaction."""

    def execute(self, statement: Any, values: Any, /) -> Any:
        """Return a cursor with the result."""
        ...


C = TypeVar("C", bound=LedgerSession)


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerStatements:
    """The SQL on the ledger's table, in the dialect of its database.

    `tail` and `at` select the position and the text of a pipeline's newest entry, and of the entry at a position.
    `newest_positions` selects the two newest. `prune` deletes entries of a pipeline below a position, `prune_proofs` rows of
    killed self-tests: those with a name that begins with `prefix`, and a position below `below`.
    """

    create_ledger: Any
    create_history: Any
    tail: Any
    at: Any
    newest_positions: Any
    insert: Any
    prune: Any
    prune_proofs: Any


class DatabaseLedger(BaseLedger, Generic[C]):
    """A `Ledger` in the table `penstock_ledger`, which also holds other pipelines' ledgers.

    Thread-safe: one connection, one call at a time. Waits for another session that is writing the same position as long as the
    database allows, then raises Retryable. A connection on which anything failed is dropped.
    """

    def __init__(self, connect: Callable[[], Sessions[C]], statements: LedgerStatements, *, pipeline: PipelineName) -> None:
        self._connect, self._database = connect, connect()
        self._sql = statements
        self._pipeline = pipeline
        self._lock = RLock()
        self._checked: C | None = None

    # --- what differs between databases

    _inserting: Callable[[], AbstractContextManager[None]]
    _committing: Callable[[], AbstractContextManager[None]]
    _pruning: Callable[[], AbstractContextManager[None]]
    """The fault points around an entry's insert and COMMIT, and around the deletion of old ones."""

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

    # --- as `Ledger`

    @property
    def home(self) -> str | None:
        """The name of the database, equal to `home` of a sink in it. `within` gets the ledger's connection."""
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
            self._prove_writers(after=0 if tail is None else tail.position)

    def prune(self, *, below: Position) -> None:
        """Raises ValueError if the tail would be pruned: while it stays, a pruned position counts as taken."""
        with self._lock, self._database.dropping_on_error():
            tail = self.tail()
            require_tail_kept(tail, below=below)
            connection = self._writable()
            with self._database.translate_errors(Failed), self._pruning():
                self._database.begin(connection)
                connection.execute(self._sql.prune, (self._pipeline, below))
                connection.execute(self._sql.prune_proofs, {"prefix": self._proof_prefix, "below": below})
                self._commit(connection)

    def newest_lease(self) -> tuple[int, bytes] | None:
        row = self._row(self._sql.tail, self._lease_name)
        return None if row is None else (row[0], row[1].encode())

    def append_lease(self, number: int, data: bytes) -> bool:
        with self._lock, self._database.dropping_on_error(), self._database.translate_errors(Failed):
            connection = self._writable()
            self._database.begin(connection)
            if not self._put(connection, self._lease_name, number, data.decode("ascii")):
                self._database.drop()
                return False
            connection.execute(self._sql.prune, (self._lease_name, number - 1))
            self._commit(connection)
        return True

    @property
    def _lease_name(self) -> str:
        """The name under which the lease's records are rows of the table. No pipeline's name contains a slash."""
        return f"{self._pipeline}/lease"

    def close(self) -> None:
        """Close the connection; the next call opens another."""
        with self._lock:
            self._database.drop()

    # --- the self-test

    @property
    def _proof_prefix(self) -> str:
        """The prefix of the names of the pipeline's self-tests. No pipeline's name contains a slash."""
        return f"{self._pipeline}/prove/"

    def _prove_writers(self, *, after: int) -> None:
        """Let writers with their own connections race for rows, removed after success. Raises StoreIgnoresConditions.

        They race in the ledger's own table, since its key is what counts, not that of a scratch table. The rows have an
        impossible pipeline name, and positions above the tail, by which a later `prune` recognises the rows of a killed test.
        """
        name = f"{self._proof_prefix}{new_nonce()}"
        writers = [self._connect() for _ in range(WRITERS)]
        try:
            connections = [writer.connected(Failed) for writer in writers]
            with racing_threads() as threads:
                for position in range(after + 1, after + 1 + ROUNDS):
                    creates = [partial(self._put_proof, connection, name, position) for connection in connections]
                    race(creates, threads, look=partial(self._proof, connections[-1], name, position), location=self.location)
            connections[0].execute(self._sql.prune, (name, after + 1 + ROUNDS))
        finally:
            for writer in writers:
                writer.drop()

    def _put_proof(self, connection: C, name: str, position: int, body: bytes) -> bool:
        return self._put(connection, name, position, json.dumps(body.decode()))

    def _proof(self, connection: C, name: str, position: int) -> bytes | None:
        row = connection.execute(self._sql.at, (name, position)).fetchone()
        return None if row is None else str(json.loads(row[1])).encode()

    # --- reading and writing

    def _select(self, statement: Any, *values: str | int) -> Entry | None:
        row = self._row(statement, *values)
        return None if row is None else self._decode(row[1].encode(), row[0])

    def _row(self, statement: Any, *values: str | int) -> tuple[int, str] | None:
        with self._lock:
            stood_idle = self._database.is_connected
            try:
                return self._look(statement, values)
            except Retryable:
                if not stood_idle:
                    raise
                return self._look(statement, values)  # the idle connection had broken unnoticed

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
