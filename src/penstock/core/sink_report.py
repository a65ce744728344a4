"""What `penstock verify` found in one sink."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.core.totals import Totals

if TYPE_CHECKING:
    from penstock.core.model import AccountName, BatchId, Position


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One difference that `penstock verify` found, and where."""

    message: str
    account: "AccountName | None" = None
    file: str | None = None
    batch_id: "BatchId | None" = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountReport:
    """An account's content, and what the ledger expects; `kept` files of others and `adopted` ones are counted apart."""

    expected: Totals
    found: Totals
    kept: Totals = field(default_factory=Totals)
    adopted: Totals = field(default_factory=Totals)

    @property
    def ok(self) -> bool:
        """Whether rows and content digest agree. Bytes and files may differ after compaction by maintenance."""
        return self.expected.rows == self.found.rows and self.expected.digest == self.found.digest


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingFiles:
    """What is gone from an account where nothing else differs: files of retained decisions (`names`), and `adopted` ones.

    Of what `older` decisions lack only the sum is known, so their files that are left, `unchecked`, cannot be checked one by one.
    """

    account: "AccountName"
    names: frozenset[str]
    older: Totals = field(default_factory=Totals)
    unchecked: Totals = field(default_factory=Totals)
    adopted: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkReport:
    """A sink's content compared with the ledger `as_of` a position. `unread`: publications were compared, but no row was read."""

    accounts: "Mapping[AccountName, AccountReport]"
    problems: tuple[Problem, ...]
    unread: bool = False
    as_of: "Position | None" = None
    """The oldest position of all accounts; None for a sink that has nothing to compare."""
    missing: tuple[MissingFiles, ...] = ()
    """What an operator can accept as removed on purpose."""
    unnamed: "Mapping[AccountName, Totals]" = field(default_factory=dict)
    """What was decided for accounts that the pipeline file no longer names. Nobody looked there."""

    @property
    def ok(self) -> bool:
        """Whether nothing is lost, doubled, changed or foreign."""
        return not self.problems and all(account.ok for account in self.accounts.values())
