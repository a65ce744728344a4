"""A ledger in PostgreSQL: pipeline and position are the primary key, and one transaction is one append.

A sink in the same database commits its rows in the ledger's transaction. Nothing is created by reading, and nothing of a session
is needed from one transaction to the next. Source: the manual of PostgreSQL, "Read Committed Isolation Level": an insert waits
for whoever inserts the same key, and each statement sees what was committed before it began.
"""

from collections.abc import Iterator
from threading import RLock

import psycopg

from penstock.codec import decode_entry, encode_entry
from penstock.errors import Failed, PositionTaken, Retryable
from penstock.faults import FaultPoint
from penstock.ledger.backwards import newest_first, require_tail_kept
from penstock.ledger.ownership import gap, require_own, require_pipeline
from penstock.ledger.postgres_proof import has_table, prefix_of, prove_writers, require_table
from penstock.ledger.postgres_statements import LedgerStatements
from penstock.model import Entry, PipelineName, Position
from penstock.postgres.database import LOCK_TIMEOUT_S, Connection, Database, require_schema
from penstock.postgres.names import DEFAULT_SCHEMA, require_name
from penstock.postgres.statements import ONE_AT_A_TIME
from penstock.postgres.trouble import cut_off
from penstock.protocols import Within

CREATE = FaultPoint("ledger.postgres_create", "The ledger's table and its view are created and committed.")
INSERT = FaultPoint("ledger.postgres_insert", "The entry is inserted at its position, in an open transaction.")
COMMIT = FaultPoint("ledger.postgres_commit", "The entry's transaction is committed.")
PRUNE = FaultPoint("ledger.postgres_prune", "Old entries are deleted in one transaction.")


class PostgresLedger:
    """A `Ledger` in the database at `url`, in the table `penstock_ledger` of `schema`, which holds those of other pipelines, too.

    Safe to use from several threads: one connection, one call at a time. Waits `lock_timeout_s` for another session that holds
    the same position, then raises Retryable. A connection on which anything failed is dropped.
    """

    def __init__(
        self, url: str, *, pipeline: PipelineName, schema: str = DEFAULT_SCHEMA, lock_timeout_s: float = LOCK_TIMEOUT_S
    ) -> None:
        self._pipeline, self._schema = pipeline, require_name(schema)
        self._sql = LedgerStatements(self._schema)
        self._database = Database(url, application=f"penstock:{pipeline}", lock_timeout_s=lock_timeout_s)
        self._lock = RLock()
        self._checked: Connection | None = None

    @property
    def location(self) -> str:
        """Server and database."""
        where = "" if self._schema == DEFAULT_SCHEMA else f", schema {self._schema}"
        return f"postgresql://{self._database.place}{where}"

    @property
    def home(self) -> str | None:
        """As `Database.home`, which is also that of a sink there. `within` gets the `psycopg.Connection`."""
        return self._database.home

    def tail(self) -> Entry | None:
        """As `Ledger.tail`: one look at the end of the primary key."""
        return self._select(self._sql.tail, self._pipeline)

    def read(self, position: Position) -> Entry | None:
        """As `Ledger.read`."""
        return self._select(self._sql.at, self._pipeline, position)

    def append(self, entry: Entry, *, within: Within | None = None) -> None:
        """As `Ledger.append`. What `within` raises is raised on, and nothing is written."""
        require_pipeline(entry.pipeline, pipeline=self._pipeline, location=self.location)
        with self._lock, self._database.dropping_on_error():
            connection = self._writable()
            with self._database.told(Failed), INSERT.around(error=cut_off, lost=cut_off):
                self._database.begin(connection)
                self._insert(connection, entry)
            if within is not None:
                within(connection)
            with (
                self._database.unknown_if_cut("the newest entry", read="the ledger", kind=Failed),
                COMMIT.around(error=cut_off, lost=cut_off),
            ):
                self._database.commit(connection)

    def newest_first(self) -> Iterator[Entry]:
        """As `Ledger.newest_first`: one look per entry, so that no transaction is open between them."""
        return newest_first(self)

    def prove(self) -> None:
        """As `Ledger.prove`: a server that keeps what it commits, a table with its key, racing writers."""
        with self._lock, self._database.dropping_on_error(), self._database.told(Failed):
            self._writable()
            tail = self.tail()
            after = 0 if tail is None else tail.position
            prove_writers(self._database, self._sql, pipeline=self._pipeline, after=after, location=self.location)

    def prune(self, *, below: Position) -> None:
        """As `Ledger.prune`. A pruned position stays taken because the tail stays. Raises ValueError if it would not."""
        with self._lock, self._database.dropping_on_error():
            tail = self.tail()
            require_tail_kept(tail, below=below)
            connection = self._writable()
            with self._database.told(Failed), PRUNE.around(error=cut_off, lost=cut_off):
                self._database.begin(connection)
                connection.execute(self._sql.prune, (self._pipeline, below))
                connection.execute(self._sql.prune_proofs, (prefix_of(self._pipeline), below))
                self._database.commit(connection)

    def close(self) -> None:
        """Close the connection; the next call opens another."""
        with self._lock:
            self._database.drop()

    # --- reading and writing

    def _select(self, statement: "psycopg.sql.Composed", *values: str | int) -> Entry | None:
        with self._lock:
            stood_idle = self._database.is_connected
            try:
                row = self._fetch(statement, values)
            except Retryable:
                if not stood_idle:
                    raise
                row = self._fetch(statement, values)  # the connection was gone, and nobody had noticed
        return None if row is None else self._decode(*row)

    def _fetch(self, statement: "psycopg.sql.Composed", values: tuple[str | int, ...]) -> tuple[int, str] | None:
        with self._database.dropping_on_error(), self._database.told(Failed):
            try:
                return self._database.connected(Failed).execute(statement, values).fetchone()
            except psycopg.errors.UndefinedTable:
                return None

    def _decode(self, position: int, text: str) -> Entry:
        entry = decode_entry(text.encode(), where=f"Entry {position} of the ledger at {self.location}")
        return require_own(entry, pipeline=self._pipeline, position=Position(position), location=self.location)

    def _insert(self, connection: Connection, entry: Entry) -> None:
        """Looks after the insert: from then on nobody takes the position, so what it finds stays true until the COMMIT."""
        values = (self._pipeline, entry.position, encode_entry(entry).decode("ascii"))
        if connection.execute(self._sql.insert, values).fetchone() is None:
            raise PositionTaken
        newest = [position for (position,) in connection.execute(self._sql.newest_positions, (self._pipeline,)).fetchall()]
        if newest[0] != entry.position:  # it was taken once, and pruned
            raise PositionTaken
        if entry.position > 1 and newest[1:] != [entry.position - 1]:
            raise gap(entry, location=self.location)

    def _writable(self) -> Connection:
        connection = self._database.writable(Failed)
        if self._checked is not connection:
            with self._database.told(Failed):
                if not has_table(connection, self._schema):
                    self._create(connection)
                require_table(connection, self._schema, location=self.location)
            self._checked = connection
        return connection

    def _create(self, connection: Connection) -> None:
        with CREATE.around(error=cut_off, lost=cut_off):
            self._database.begin(connection)
            connection.execute(ONE_AT_A_TIME)
            require_schema(connection, self._schema)
            if not has_table(connection, self._schema):
                connection.execute(self._sql.create_ledger, ())
                connection.execute(self._sql.create_history, ())
            self._database.commit(connection)
