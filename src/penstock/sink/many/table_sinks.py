"""`TableSinks`: the sinks of single tables that a sink into many tables has, by table."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Generic, TypeVar

from penstock.core.faults import FaultPoint
from penstock.core.model import AccountName
from penstock.core.table_names import TableNames
from penstock.errors import Retryable

OPEN = FaultPoint("tables.open", "A table that rows name for the first time is created, before their batch is decided.")

S = TypeVar("S")


class TableSinks(Generic[S]):
    """Sinks made by `make`, which connects nothing. `opened`: those of tables that rows may be staged for."""

    def __init__(self, names: TableNames, make: Callable[[AccountName], S]) -> None:
        self.names, self._make = names, make
        self.opened: dict[AccountName, S] = {}
        self._others: dict[AccountName, S] = {}
        self.misfit: AccountName | None = None
        """A table that the ledger knows, and that the template cannot name."""

    def use(self, tables: Collection[AccountName]) -> None:
        """Open the tables that the ledger knows, as far as they are allowed, without preparing them."""
        for table in sorted(tables):
            if not self.names.fits(table):
                self.misfit = table
            elif table not in self.opened and self.names.refusal(table) is None:
                self.opened[table] = self._make(table)

    def open(self, tables: Collection[AccountName], prepare: Callable[[S], None]) -> None:
        """Open tables that rows name. Raises StageFailed for too many, and what `prepare` raises."""
        for table in self.names.to_open(tables, self.opened):
            one = self._make(table)
            with OPEN.around(error=_failed, lost=_failed):
                prepare(one)
            self.opened[table] = one

    def of(self, table: AccountName) -> S:
        """Return the sink of a table. One that the settings do not allow any more can still have a decided share."""
        if table in self.opened:
            return self.opened[table]
        if table not in self._others:
            self._others[table] = self._make(table)
        return self._others[table]

    def every(self) -> Sequence[S]:
        """Return all sinks that were made."""
        return [*self.opened.values(), *self._others.values()]

    def known(self) -> Mapping[AccountName, S]:
        """Return the sinks of all tables that can be named before rows name them."""
        listed = [AccountName(name) for name in self.names.listed if name not in self.opened]
        return {**{table: self._make(table) for table in listed}, **self.opened}

    def described(self, shows: str, *, unrouted: str) -> str:
        """Describe for `explain` which tables there are; `shows` says how they show a batch."""
        return (
            f"one for each {self.names.template} that rows have, {self.names.most} at most; created before the first batch with "
            f"rows for it is decided, and {shows}; other rows: {unrouted}"
        )

    def counted(self, there: int, *, creates: bool) -> str:
        """Describe for `check` how many tables there are."""
        others = "others are created when rows name them" if creates else "`create` is false: rows for others fail"
        return f"{there} of at most {self.names.most} tables {self.names.template} are there, and {others}"


def _failed(point: str) -> Retryable:
    return Retryable(f"{point} failed.", remedy="Start again.")
