"""`Vacuum`: removes files that no version of a Delta table within a retention has, and that no driver can commit any more.

The library's own vacuum, and that of other engines, goes by what the log has forgotten: it takes a file of a decided batch whose
driver died between the move and the commit, if that was long enough ago. Here a file is removed only if it is this sink's own,
neither the newest version nor the one that began the retention has it, and no commit after that one can have added it: a batch's
file, since its batch was published before; a compaction's, since its name tells the one version that could add it. Files of newer
batches, and of compactions that some driver may be about to commit, are left alone, however long that driver stands still.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from penstock.core.faults import FaultPoint
from penstock.core.model import BatchId, Generation
from penstock.sink.delta.log import DeltaLog, Snapshot
from penstock.sink.lake.maintained_table import HOUR_MS, CleansTable, MaintainedTable
from penstock.sink.lake.staging import compaction_in, file_of
from penstock.sink.parquet.layout import order_of
from penstock.support.private_files import io_error

REMOVE = FaultPoint("deltavacuum.remove", "A file that no version of a Delta table within the retention has is removed.")

Order: TypeAlias = tuple[Generation, BatchId]
"""Of a batch, as `order_of` returns it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Vacuum(CleansTable):
    """The retention goes from `after_ms` before `now_ms` until now. Its beginning is compared with the times of commits."""

    log: DeltaLog
    after_ms: int
    now_ms: Callable[[], int]

    def describe(self) -> str:
        return f"files leave that no version of the last {self.after_ms / HOUR_MS:g} h has"

    def clean(self, table: MaintainedTable) -> None:
        newest = self.log.newest()
        if newest is None:
            return
        with self.log.reading():
            dead = list(self._dead(newest, table)) if table.owns(newest) else []
        if dead:
            table.sync(newest.version)  # else a power cut could undo the commit that took them out, but not their removal
        for name in dead:
            with REMOVE.around(error=io_error, lost=io_error):
                self.log.remove(name)

    def _dead(self, newest: Snapshot, table: MaintainedTable) -> Iterator[str]:
        """Yield the names of files that may be removed."""
        oldest = self._oldest_version(newest)
        before = None if oldest is None else _order_at(oldest, newest, table)
        if oldest is None or before is None:
            return
        there = {file_of(file.path) for snapshot in (self.log.at(oldest), newest) for file in snapshot.files()}
        for file in table.area.files():
            if table.wrote(file.name) and file.name not in there and _is_over(file.name, oldest, before):
                yield file.name

    def _oldest_version(self, newest: Snapshot) -> int | None:
        """Return the version that was the newest one when the retention began; None if the log does not tell its files any more.

        That is so after a pause that was longer than the log is kept. Who reads such a version may have begun within the
        retention, so nothing is removed until the version after it is the one.
        """
        since_ms = self.now_ms() - self.after_ms
        low, high = 0, newest.version
        while low < high:
            middle = (low + high + 1) // 2
            if _is_older(newest, middle, since_ms):
                low = middle
            else:
                high = middle - 1
        return None if newest.commit_info(low) is None else low


def _is_over(name: str, version: int, before: Order) -> bool:
    """Return whether no commit after `version` can have added the file, nor ever will."""
    compaction, order = compaction_in(name), order_of(name)
    if compaction is not None:
        becomes, _ = compaction
        return becomes <= version
    return order is not None and order < before


def _order_at(version: int, newest: Snapshot, table: MaintainedTable) -> Order | None:
    """Return the key of the newest batch that a version shows, None if it shows none, or its last commits do not say which."""
    publication = table.publication
    mark = newest.marker_at(version, publication.pipeline, publication.sink)
    if mark is None or mark.generation is None or mark.batch_id is None or mark.ledger_id != publication.ledger_id:
        return None
    return min((mark.generation, mark.batch_id), (publication.generation, publication.batch.batch_id))


def _is_older(newest: Snapshot, version: int, since_ms: int) -> bool:
    """Return whether the commit was made before that time. One that the log has no more was; one without a time was not."""
    found = newest.commit_info(version)
    if found is None:
        return True
    at_ms = found.get("timestamp")
    return isinstance(at_ms, int) and at_ms <= since_ms
