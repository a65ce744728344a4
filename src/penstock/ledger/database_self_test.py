"""The self-test of a ledger in a database table: of several racing writers, exactly one wins.

They race for rows of the ledger's own table, since its key is what counts, not that of a scratch table. The rows have an
impossible pipeline name, and positions above the tail, by which a later `prune` recognises the rows of a killed test.
"""

import json
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from penstock.core.model import PipelineName, new_nonce
from penstock.errors import Failed
from penstock.ledger.database import LedgerDatabase, LedgerStatements, Session
from penstock.ledger.self_test import ROUNDS, WRITERS, race

C = TypeVar("C", bound=Session)
Put = Callable[[C, str, int, str], bool]


def prefix_of(pipeline: PipelineName) -> str:
    """Return the prefix of the names of a pipeline's self-tests. No pipeline's name contains a slash."""
    return f"{pipeline}/prove/"


def prove_writers(
    database: LedgerDatabase[C], statements: LedgerStatements, put: Put[C], *, pipeline: PipelineName, after: int, location: str
) -> None:
    """Let writers with their own connections race for rows, removed after success. Raises StoreIgnoresConditions."""
    name = f"{prefix_of(pipeline)}{new_nonce()}"
    writers = [database.another() for _ in range(WRITERS)]
    try:
        connections = [writer.connected(Failed) for writer in writers]
        for position in range(after + 1, after + 1 + ROUNDS):
            creates = [partial(_create, connection, put, name, position) for connection in connections]
            race(creates, look=partial(_look, connections[-1], statements, name, position), location=location)
        connections[0].execute(statements.prune, (name, after + 1 + ROUNDS))
    finally:
        for writer in writers:
            writer.drop()


def _create(connection: C, put: Put[C], name: str, position: int, body: bytes) -> bool:
    return put(connection, name, position, json.dumps(body.decode()))


def _look(connection: C, statements: LedgerStatements, name: str, position: int) -> bytes | None:
    row = connection.execute(statements.at, (name, position)).fetchone()
    return None if row is None else str(json.loads(row[1])).encode()
