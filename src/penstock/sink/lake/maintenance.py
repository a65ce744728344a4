"""`Upkeep`: rounds of maintenance between a sink's batches, which compact its table and remove what only older versions have.

A round runs in the driver, when its batch is published in every sink and before the next one is decided. It changes no row and no
marker, and whatever fails in it is a warning.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from penstock.core.model import Nonce
from penstock.errors import Conflict, ContentConflict
from penstock.sink.lake.compaction import Compaction
from penstock.sink.lake.log import first_line
from penstock.sink.lake.maintained_table import CleansTable, MaintainedTable

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Maintenance:
    """What a sink does beside its deliveries, once in `every` batches of a run.

    `target_bytes`: the size that a compaction gives to files, None for no compaction. `cleaner`: removes what only older versions
    have, None where everything stays.
    """

    every: int
    target_bytes: int | None = None
    cleaner: CleansTable | None = None

    def describe(self) -> str:
        """Return what is done and when, for `penstock explain`."""
        rounds = "after each batch" if self.every == 1 else f"after every {self.every} batches of a run"
        compaction = [] if self.target_bytes is None else [f"small files become files of about {self.target_bytes / 1e6:.0f} MB"]
        return f"{rounds}: {'; '.join([*compaction, *([] if self.cleaner is None else [self.cleaner.describe()])])}"


class Upkeep:
    """The rounds of one run of a sink, in the table `title`. Used by one thread at a time."""

    def __init__(self, maintenance: Maintenance, *, title: str) -> None:
        self._maintenance, self._title = maintenance, title
        self._batches = 0
        self._settled: set[Nonce] = set()
        self._is_unsound = False

    def describe(self) -> str:
        """Return what `Maintenance.describe` returns."""
        return self._maintenance.describe()

    def after_batch(self, table: Callable[[], MaintainedTable]) -> Sequence[str]:
        """Do what is due after a batch that this run decided and every sink published. Return warnings; raise nothing.

        What an earlier run left is removed after the first batch, too, whose commit shows what can never be a part of the table.
        """
        self._batches += 1
        return [failure for act in self._acts() if (failure := self._failure_of(act, table)) is not None]

    def _acts(self) -> Iterator[Callable[[MaintainedTable], None]]:
        """Yield what is due after this batch."""
        maintenance, is_due = self._maintenance, self._batches % self._maintenance.every == 0
        if maintenance.target_bytes is not None and (is_due or self._batches == 1):
            yield lambda table: self._compaction(table).collect()
        if maintenance.target_bytes is not None and is_due and not self._is_unsound:
            yield lambda table: self._compaction(table).run()
        if maintenance.cleaner is not None and is_due:
            yield maintenance.cleaner.clean

    def _compaction(self, table: MaintainedTable) -> Compaction:
        target_bytes = self._maintenance.target_bytes
        assert target_bytes is not None
        return Compaction(table=table, target_bytes=target_bytes, settled=self._settled)

    def _failure_of(self, act: Callable[[MaintainedTable], None], table: Callable[[], MaintainedTable]) -> str | None:
        """Do an act of maintenance. Return why it failed; None if it did not, or if somebody else changed the table meanwhile."""
        try:
            act(table())
        except Conflict as conflict:
            _log.info("The %s is maintained in a later round: %s", self._title, conflict)
        except Exception as error:  # noqa: BLE001 - the batch is delivered, whatever becomes of maintenance
            self._is_unsound |= isinstance(error, ContentConflict)  # each compaction would leave its files until the next start
            failure = f"The {self._title} was not maintained, and is in a later round: {first_line(error)}."
            _log.info("%s", failure)  # whoever runs the batch shows its warnings
            return failure
        return None
