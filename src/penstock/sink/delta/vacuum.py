"""`Vacuum`: removes files that no version of a Delta table within a retention has, and that no driver can commit any more.

The library's own vacuum, and that of other engines, goes by what the log has forgotten: it takes a file of a decided batch whose
driver died between the move and the commit, if that was long enough ago. Here a file is removed only if it is this sink's own,
neither the newest version nor the one that began the retention has it, and its batch was published before that one: then every
version that had it is older. Files of newer batches, which a newer driver may be about to commit, are left alone, however long
this driver stood still.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from penstock.core.faults import FaultPoint
from penstock.core.model import BatchId, Generation
from penstock.sink.delta.log import DeltaLog, Snapshot
from penstock.sink.lake.maintained_table import CleansTable, MaintainedTable
from penstock.sink.parquet.layout import is_owned, is_parquet, order_of
from penstock.support.private_files import io_error

VACUUM = FaultPoint("lakeupkeep.vacuum", "A file that no version of a Delta table within the retention has is removed.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Vacuum(CleansTable):
    """The retention goes from `after_ms` before `now_ms` until now. Its beginning is compared with the times of commits."""

    log: DeltaLog
    after_ms: int
    now_ms: Callable[[], int]

    def clean(self, table: MaintainedTable) -> None:
        newest = self.log.newest()
        if newest is None:
            return
        with self.log.reading():
            dead = list(self._dead(newest, table)) if table.owns(newest) else []
        for name in dead:
            with VACUUM.around(error=io_error, lost=io_error):
                self.log.remove(name)

    def _dead(self, newest: Snapshot, table: MaintainedTable) -> Iterator[str]:
        """Yield the names of files that may be removed."""
        oldest = self._oldest_version(newest)
        before = _order_at(oldest, newest, table)
        if before is None:
            return
        there = {file.path for snapshot in (self.log.at(oldest), newest) for file in snapshot.files()}
        for file in table.area.files():
            order = order_of(file.name)
            if order is None or order >= before or file.name in there:
                continue
            if is_owned(file.name, table.writer.owner) and is_parquet(file.name):
                yield file.name

    def _oldest_version(self, newest: Snapshot) -> int:
        """Return the version that was the newest one when the retention began; the one after it if the log has lost that one."""
        since_ms = self.now_ms() - self.after_ms
        low, high = 0, newest.version
        while low < high:
            middle = (low + high + 1) // 2
            if _is_older(newest, middle, since_ms):
                low = middle
            else:
                high = middle - 1
        return min(low + 1, newest.version) if newest.commit_info(low) is None else low


def _order_at(version: int, newest: Snapshot, table: MaintainedTable) -> tuple[Generation, BatchId] | None:
    """Return the key of the newest batch that a version shows, None if it shows none, or its last commits do not say which."""
    publication = table.publication
    mark = newest.marker_at(version, publication.pipeline, publication.sink)
    if mark is None or mark.generation is None or mark.batch_id is None or mark.ledger_id != publication.ledger_id:
        return None
    return min((mark.generation, mark.batch_id), table.order)


def _is_older(newest: Snapshot, version: int, since_ms: int) -> bool:
    """Return whether the commit was made before that time. One that the log has no more was; one without a time was not."""
    found = newest.commit_info(version)
    if found is None:
        return True
    at_ms = found.get("timestamp")
    return isinstance(at_ms, int) and at_ms <= since_ms
