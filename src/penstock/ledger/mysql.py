"""The `DatabaseLedger` of MySQL and MariaDB.

Source: the manual of MySQL, "Locks Set by Different SQL Statements in InnoDB": an insert waits for a concurrent insert of the
same key, and then finds the key taken or free. "Consistent Nonlocking Reads": with READ COMMITTED each statement sees what was
committed before it. `entry` is no JSON column: the server would sort the keys.
"""

# ruff: noqa: S608 - every name in a statement is our own, every value is bound

from contextlib import AbstractContextManager
from functools import partial

import pymysql

from penstock.core.faults import FaultPoint
from penstock.core.model import PipelineName
from penstock.errors import Failed, GuaranteeTooWeak
from penstock.ledger.database import HISTORY_VIEW, KEY, LEDGER_TABLE, DatabaseLedger, LedgerStatements
from penstock.sql.mysql.catalog import ENGINE, kind_of, uniques_of
from penstock.sql.mysql.connection import Connection
from penstock.sql.mysql.database import Database, one_at_a_time
from penstock.sql.mysql.errors import ABSENT_TABLE, DUPLICATE, code_of, connection_lost, without_view
from penstock.sql.mysql.statements import OWN_OPTIONS
from penstock.sql.session import LOCK_TIMEOUT_S

CREATE = FaultPoint("ledger.mysql_create", "The ledger's table and its view are created, each committed by itself.")
INSERT = FaultPoint("ledger.mysql_insert", "The entry is inserted at its position, in an open transaction.")
COMMIT = FaultPoint("ledger.mysql_commit", "The entry's transaction is committed.")
PRUNE = FaultPoint("ledger.mysql_prune", "Old entries are deleted in one transaction.")

_AROUND_ENTRY = 1_000
"""An upper bound for the bytes of the insert statement without the entry."""

_TEXT = "JSON_VALUE(ledger.entry, '$.{}')"
_BY_WHOM = f"COALESCE({_TEXT.format('body.owner')}, {_TEXT.format('body.operator')})"
_QUERY = f"COALESCE({_TEXT.format('body.decision.query_id')}, {_TEXT.format('body.query_id')})"
_MICROSECONDS = f"CAST({_TEXT.format('written_at_ms')} AS SIGNED) * 1000"

_STATEMENTS = LedgerStatements(
    create_ledger="CREATE TABLE penstock_ledger (pipeline varchar(255) NOT NULL, position bigint NOT NULL, "
    f"entry longtext NOT NULL, PRIMARY KEY (pipeline, position)) {OWN_OPTIONS}",
    # Names with a slash belong to self-tests.
    create_history=f"""
CREATE SQL SECURITY INVOKER VIEW penstock_history AS
SELECT ledger.pipeline, ledger.position, CAST({_TEXT.format("generation")} AS SIGNED) AS generation,
       TIMESTAMPADD(MICROSECOND, {_MICROSECONDS}, TIMESTAMP '1970-01-01 00:00:00') AS written_at,
       {_TEXT.format("body.kind")} AS kind, {_BY_WHOM} AS by_whom, {_QUERY} AS query_id,
       CAST({_TEXT.format("body.decision.batch_id")} AS SIGNED) AS batch_id,
       CAST({_TEXT.format("body.decision.rows_in")} AS SIGNED) AS rows_in,
       JSON_EXTRACT(ledger.entry, '$.body.decision.offsets') AS offsets
FROM penstock_ledger AS ledger
WHERE ledger.pipeline NOT LIKE '%/%'
""",
    tail="SELECT position, entry FROM penstock_ledger WHERE pipeline = %s ORDER BY position DESC LIMIT 1",
    at="SELECT position, entry FROM penstock_ledger WHERE pipeline = %s AND position = %s",
    newest_positions="SELECT position FROM penstock_ledger WHERE pipeline = %s ORDER BY position DESC LIMIT 2",
    # Waits for a concurrent insert at the same position; raises if the position is taken.
    insert="INSERT INTO penstock_ledger (pipeline, position, entry) VALUES (%s, %s, %s)",
    prune="DELETE FROM penstock_ledger WHERE pipeline = %s AND position < %s",
    # A range of the key, which locks no other rows: the rest of a name is hexadecimal, so it sorts below 'g'.
    prune_proofs="DELETE FROM penstock_ledger WHERE pipeline > %(prefix)s AND pipeline < CONCAT(%(prefix)s, 'g') "
    "AND position < %(below)s",
)


class MysqlLedger(DatabaseLedger[Connection]):
    """A `DatabaseLedger` in the database at `url`. `within` gets the `penstock.sql.mysql.connection.Connection`.

    Waits `lock_timeout_s` (whole seconds) for another session's lock.
    """

    _database: Database
    _inserting = staticmethod(partial(INSERT.around, error=connection_lost, lost=connection_lost))
    _committing = staticmethod(partial(COMMIT.around, error=connection_lost, lost=connection_lost))
    _pruning = staticmethod(partial(PRUNE.around, error=connection_lost, lost=connection_lost))

    def __init__(self, url: str, *, pipeline: PipelineName, lock_timeout_s: float = LOCK_TIMEOUT_S) -> None:
        connect = partial(Database, url, application=f"penstock:{pipeline}", lock_timeout_s=lock_timeout_s)
        super().__init__(connect, _STATEMENTS, pipeline=pipeline)

    @property
    def location(self) -> str:
        return f"mysql://{self._database.place}"

    def _fetch(self, connection: Connection, statement: str, values: tuple[str | int, ...]) -> tuple[int, str] | None:
        try:
            found: tuple[int, str] | None = connection.execute(statement, values).fetchone()
        except pymysql.err.ProgrammingError as cause:
            if code_of(cause) != ABSENT_TABLE:
                raise
            return None
        return found

    def _put(self, connection: Connection, pipeline: str, position: int, text: str) -> bool:
        values = (pipeline, position, text)
        self._require_carried(connection, values)
        try:
            connection.execute(self._sql.insert, values)
        except pymysql.err.IntegrityError as cause:
            if code_of(cause) != DUPLICATE:
                raise
            return False
        return True

    def _require_carried(self, connection: Connection, values: tuple[str, int, str]) -> None:
        """Raise Failed above `max_allowed_packet`: the server would close the connection, as if the network had failed."""
        most = connection.server.max_packet
        if 2 * len(values[2]) + _AROUND_ENTRY <= most:  # enough even if every character is escaped
            return
        size = connection.size_of(self._sql.insert, values)
        if size >= most:
            raise Failed(
                f"Entry {values[1]} takes a statement of {size} bytes, but max_allowed_packet of {self._database.place} "
                f"is {most}.",
                remedy=f"SET GLOBAL max_allowed_packet to more than {size}, and in the server's configuration, too.",
            )

    def _commit(self, connection: Connection) -> None:
        self._database.commit(connection, Failed)

    def _settling(self) -> AbstractContextManager[None]:
        return self._database.unknown_if_cut("the newest entry", read="the ledger")

    def _require_table(self, connection: Connection) -> None:
        if None in {kind_of(connection, LEDGER_TABLE), kind_of(connection, HISTORY_VIEW)}:
            self._create(connection)
        found = kind_of(connection, LEDGER_TABLE)
        assert found is not None
        kind, engine = found
        if kind == "table" and engine.lower() != ENGINE.lower():
            raise GuaranteeTooWeak(
                f"The table {LEDGER_TABLE} of the ledger {self.location} is of the engine {engine}, expected {ENGINE}: a "
                "transaction does not cover it.",
                remedy=f"ALTER TABLE {LEDGER_TABLE} ENGINE = {ENGINE}.",
            )
        if kind != "table" or KEY not in uniques_of(connection, LEDGER_TABLE).values():
            raise self._no_ledger_table()

    def _create(self, connection: Connection) -> None:
        with CREATE.around(error=connection_lost, lost=connection_lost), one_at_a_time(connection):
            if kind_of(connection, LEDGER_TABLE) is None:
                connection.execute(self._sql.create_ledger)
            if kind_of(connection, HISTORY_VIEW) is None:
                with without_view():
                    connection.execute(self._sql.create_history)
