"""The connection and the SQL that a ledger needs from a database server."""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from penstock.errors import Failed

LEDGER_TABLE = "penstock_ledger"
HISTORY_VIEW = "penstock_history"
"""A view for people and their programs; Penstock never reads it."""
KEY = frozenset({"pipeline", "position"})


class Session(Protocol):
    """A connection. Outside a transaction, each statement is its own transaction."""

    def execute(self, statement: Any, values: Any, /) -> Any:
        """Return a cursor with the result."""
        ...


C = TypeVar("C", bound=Session)


class LedgerDatabase(Protocol[C]):
    """A database, with one connection that stays open between transactions."""

    place: str
    home: str

    @property
    def is_connected(self) -> bool:
        """Whether a connection is open, as far as the client knows."""
        ...

    def another(self) -> "LedgerDatabase[C]":
        """Return an object for the same database with a connection of its own."""
        ...

    def connected(self, kind: type[Failed] = ...) -> C:
        """Return the open connection, or a new one. Raises Retryable, `kind`."""
        ...

    def writable(self, kind: type[Failed] = ...) -> C:
        """Return a connection, like `connected`, to a server that persists what it commits. Raises Retryable, `kind`, Refused."""
        ...

    def begin(self, connection: C) -> None:
        """Begin a transaction whose lock waits are bounded."""
        ...

    def drop(self) -> None:
        """Close the connection, which rolls back an open transaction."""
        ...

    def dropping_on_error(self) -> AbstractContextManager[None]:
        """Drop the connection on any exception, so that it is never used again."""
        ...

    def translate_errors(self, kind: type[Failed] = ...) -> AbstractContextManager[None]:
        """Raise the client's errors as Retryable or as `kind`."""
        ...


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
