"""The self-test of a ledger in PostgreSQL: its table is one that keeps rows, and one of several racing writers wins.

The writers race for rows of the very table, under the name of a pipeline that cannot be: what counts is its own key, not that of
a scratch table. Their positions are above the tail, so that a later `prune` knows the rows of a test that was killed.
"""

import json
from collections.abc import Sequence
from functools import partial

from penstock.errors import Failed, GuaranteeTooWeak, LedgerMismatch
from penstock.ledger.postgres_statements import KEY, LEDGER_TABLE, LedgerStatements
from penstock.ledger.prove import ROUNDS, WRITERS, race
from penstock.model import PipelineName, new_nonce
from penstock.postgres.database import Connection, Database
from penstock.postgres.statements import TABLE_KIND, TABLE_UNIQUES


def has_table(connection: Connection, schema: str) -> bool:
    """Whether the ledger's table, or anything of its name, is there."""
    return connection.execute(TABLE_KIND, (schema, LEDGER_TABLE)).fetchone() is not None


def require_table(connection: Connection, schema: str, *, location: str) -> None:
    """Raise LedgerMismatch or GuaranteeTooWeak unless it is a table that keeps its rows and each position once."""
    row = connection.execute(TABLE_KIND, (schema, LEDGER_TABLE)).fetchone()
    assert row is not None
    oid, kind, persistence, _ = row
    if kind == "r" and persistence != "p":
        raise GuaranteeTooWeak(
            f"The table {LEDGER_TABLE} of the ledger {location} is unlogged, so a crash of the server empties it.",
            remedy=f"ALTER TABLE {LEDGER_TABLE} SET LOGGED.",
        )
    uniques = [frozenset(names) for (names,) in connection.execute(TABLE_UNIQUES, (oid,)).fetchall()]
    if kind != "r" or KEY not in uniques:
        raise LedgerMismatch(
            f"{LEDGER_TABLE} of the ledger {location} is no table with the primary key (pipeline, position).",
            remedy="Restore the table from a backup, with its key.",
        )


def prefix_of(pipeline: PipelineName) -> str:
    """What the names of a pipeline's self-tests begin with. No name of a pipeline has a slash."""
    return f"{pipeline}/prove/"


def prove_writers(database: Database, statements: LedgerStatements, *, pipeline: PipelineName, after: int, location: str) -> None:
    """Let writers with connections of their own race for rows, which are removed after success. Raises StoreIgnoresConditions."""
    name = f"{prefix_of(pipeline)}{new_nonce()}"
    writers = [database.another() for _ in range(WRITERS)]
    try:
        connections = [writer.connected(Failed) for writer in writers]
        for position in range(after + 1, after + 1 + ROUNDS):
            _race(connections, statements, name, position, location)
        connections[0].execute(statements.prune, (name, after + 1 + ROUNDS))
    finally:
        for writer in writers:
            writer.drop()


def _race(connections: Sequence[Connection], statements: LedgerStatements, name: str, position: int, location: str) -> None:
    creates = [partial(_create, connection, statements, name, position) for connection in connections]
    race(creates, look=partial(_look, connections[-1], statements, name, position), location=location)


def _create(connection: Connection, statements: LedgerStatements, name: str, position: int, body: bytes) -> bool:
    return connection.execute(statements.insert, (name, position, json.dumps(body.decode()))).fetchone() is not None


def _look(connection: Connection, statements: LedgerStatements, name: str, position: int) -> bytes | None:
    row = connection.execute(statements.at, (name, position)).fetchone()
    return None if row is None else str(json.loads(row[1])).encode()
