"""A part of a batch as tasks: any process can write it, since all of them write the same rows at the batch's one time stamp."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from penstock.core.model import Publication, Totals
from penstock.core.publish_task import RunTasks
from penstock.sink.cassandra.database import StepRetry, database_of
from penstock.sink.cassandra.duplicate_keys import Numbers, without
from penstock.sink.cassandra.load import Writer
from penstock.sink.cassandra.marker_store import Replaced
from penstock.sink.spool import SpoolRoot, spool_in_task
from penstock.sink.spool.place import Claimed
from penstock.sink.table.target import Target

if TYPE_CHECKING:
    import pyarrow as pa

TASKS = 32
"""The most tasks of a batch: each opens connections of its own to every node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Some pieces of a batch, the numbers of superseded rows among theirs, and all that is needed to write the others.

    `claimed`: the spool as the driver knows it.
    """

    share: Publication
    superseded: Numbers
    target: Target
    schema: "pa.Schema"
    dated: Sequence[str]
    url: str = field(repr=False)
    wait_s: float
    spool: SpoolRoot
    claimed: Claimed

    @contextmanager
    def writer(self) -> Iterator[Writer]:
        """Connect, and open the rows. Raises NotPublishedYet, PublishFailed, StagedDataLost."""
        spool = spool_in_task(self.share, root=self.spool, claimed=self.claimed)
        database = database_of(self.url, self.share.sink)
        patience = StepRetry(database, wait_s=self.wait_s)
        try:
            with spool.rows_of(self.share) as rows:
                yield Writer(patience, self.target, lambda: without(rows, self.superseded), schema=self.schema, dated=self.dated)
        finally:
            database.drop()


@dataclass(frozen=True, slots=True)
class ReadTask:
    """A `PublishTask` that reads what the rows of a part will replace, and returns count, digest, and the newest time stamp."""

    part: Part

    def run(self) -> tuple[int, int, int]:
        with self.part.writer() as writer:
            found = writer.displaced()
        return found.totals.rows, found.totals.digest, found.newest_us


@dataclass(frozen=True, slots=True)
class WriteTask:
    """A `PublishTask` that writes a part, and returns count and digest of its rows that delete.

    An attempt that goes on after it was given up, even beside later batches, changes nothing: its rows are there already, at the
    time stamp of their batch, and later batches have later ones.
    """

    part: Part
    at_us: int

    def run(self) -> tuple[int, int]:
        with self.part.writer() as writer:
            deleting = writer.write(at_us=self.at_us)  # I2
        return deleting.rows, deleting.digest


class WriterInTasks:
    """A `BatchWriter` that has tasks do it."""

    def __init__(self, run_tasks: RunTasks, parts: Sequence[Part]) -> None:
        self._run_tasks, self._parts = run_tasks, parts

    def displaced(self) -> Replaced:
        found = self._run_tasks([ReadTask(part) for part in self._parts])
        return sum(
            (Replaced(totals=Totals(rows=rows, digest=digest), newest_us=newest_us) for rows, digest, newest_us in found),
            Replaced(),
        )

    def write(self, *, at_us: int) -> Totals:
        deleting = self._run_tasks([WriteTask(part, at_us) for part in self._parts])
        return sum((Totals(rows=rows, digest=digest) for rows, digest in deleting), Totals())


def parts_of(publication: Publication, superseded: Numbers) -> Iterator[tuple[Publication, Numbers]]:
    """Yield the pieces of a batch in at most `TASKS` parts, each with the numbers of the superseded rows among its own."""
    pieces, begin = publication.staged, 0
    parts = min(TASKS, len(pieces))
    for at in range(parts):
        own = pieces[at * len(pieces) // parts : (at + 1) * len(pieces) // parts]
        end = begin + sum(piece.totals.rows for piece in own)
        yield replace(publication, staged=own), superseded[(superseded >= begin) & (superseded < end)] - begin
        begin = end
