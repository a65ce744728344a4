"""What a ledger needs of a database on a server."""

from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

from penstock.errors import Failed

LEDGER_TABLE = "penstock_ledger"
HISTORY_VIEW = "penstock_history"
"""For people and their programs: Penstock itself never reads it."""
KEY = frozenset({"pipeline", "position"})


class Session(Protocol):
    """A connection; outside a transaction each statement is one."""

    def execute(self, statement: Any, values: Any, /) -> Any:
        """A cursor that holds the answer."""
        ...


C = TypeVar("C", bound=Session)


class LedgerDatabase(Protocol[C]):
    """A database, with one connection kept open between transactions."""

    place: str
    home: str

    @property
    def is_connected(self) -> bool:
        """Whether a connection is open, as far as this side knows."""
        ...

    def another(self) -> "LedgerDatabase[C]":
        """The same with a connection of its own."""
        ...

    def connected(self, kind: type[Failed] = ...) -> C:
        """The open connection, or a new one. Raises Retryable, `kind`."""
        ...

    def writable(self, kind: type[Failed] = ...) -> C:
        """As `connected`, to a server that keeps what it commits. Raises Retryable, `kind`, Refused."""
        ...

    def begin(self, connection: C) -> None:
        """Open a transaction whose waits are bounded."""
        ...

    def drop(self) -> None:
        """Close, which rolls back what is open."""
        ...

    def dropping_on_error(self) -> AbstractContextManager[None]:
        """Never use a connection again on which something failed."""
        ...

    def translate_errors(self, kind: type[Failed] = ...) -> AbstractContextManager[None]:
        """Raise the client's errors as Retryable or as `kind`."""
        ...


class LedgerStatements(Protocol):
    """All SQL about the ledger's table that the databases share, each in its own words; without the insert."""

    @property
    def tail(self) -> Any:
        """Position and text of the newest entry of a pipeline: one look at the end of the key."""
        ...

    @property
    def at(self) -> Any:
        """Those of one entry."""
        ...

    @property
    def newest_positions(self) -> Any:
        """The last two."""
        ...

    @property
    def prune(self) -> Any:
        """Delete entries of a pipeline below a position."""
        ...

    @property
    def prune_proofs(self) -> Any:
        """Delete what self-tests left behind that were killed when the ledger ended `below` a position: names with a `prefix`."""
        ...
