"""`Compaction`: small files of a table are written as larger ones, and exchanged for them by one commit that moves no marker.

The commit is made on the very snapshot whose files were read, and fails after any other commit of rows. So it becomes the version
after that snapshot's, which the names of its files tell, or none. Whoever finds such files later asks the table what became of
that version: if it is another commit, these files can never be a part of the table, and are removed. Nothing is asked of a clock,
and a driver that stands still in between loses nothing.

Rows keep their hashes: files are merged only if the newest columns include theirs, with their names, types and order. What was
read is counted as `verify` counts it, and compared with what was written, before anything is committed.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Final, TypeAlias

from penstock.core.faults import FaultPoint
from penstock.core.model import Generation, Nonce, Staged, Totals
from penstock.errors import Conflict, ContentConflict, PenstockError
from penstock.sink.lake.growth import left_out
from penstock.sink.lake.log import Change, TableFile, TableSnapshot
from penstock.sink.lake.maintained_table import MaintainedTable
from penstock.sink.lake.staging import compaction_in, compaction_prefix, file_of
from penstock.sink.lake.table_writer import added, remove_unseen, step_error, try_after
from penstock.sink.lake.write_mode import APPENDING

WRITE = FaultPoint("lakecompaction.write", "Small files of a Delta or Iceberg table are written as larger ones.")
COMMIT = FaultPoint("lakecompaction.commit", "The larger files are exchanged for the small ones by one commit.")

MOST_BYTES: Final = 1 << 30
MOST_FILES: Final = 10_000
"""Of one round: another commit in between makes it vain, and the next batch waits for it."""

NO_GENERATION: Final = Generation(0)
"""In the names of files: none decided their batch. Else a driver would take them for what it left of its newest batch.

Each sweep takes what is staged under it; a compaction that is at work then gives way.
"""

_TIER: Final = 2

Partition: TypeAlias = tuple[tuple[str, str | None], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction:
    """One round. Files below half of `target_bytes` are small. `settled`: nonces of compactions whose files stay for certain."""

    table: MaintainedTable
    target_bytes: int
    settled: set[Nonce] = field(default_factory=set)

    def run(self) -> None:
        """Compact what is small. Raises Conflict if others changed the table meanwhile, PenstockError; the rows are as before."""
        snapshot = self.table.newest()
        if snapshot is None:
            return
        with self.table.log.reading():
            snapshot.require_supported(APPENDING)
            small = self._small(snapshot)
        if small:
            self._exchange(small, snapshot)

    def collect(self) -> None:
        """Remove what compactions wrote that came to nothing, of this run or an earlier one. Raises PenstockError."""
        snapshot = self.table.newest()
        if snapshot is None:
            return
        with self.table.log.reading():
            vain = list(self._vain(snapshot))
        if vain:
            self.table.sync(snapshot.version)  # else a power cut could undo the commits that made them vain
        for name in vain:
            remove_unseen(self.table.log, name)

    # --- which files

    def _small(self, snapshot: TableSnapshot) -> list[TableFile]:
        """Return small files, of each partition several or none, as many as one round takes."""
        files = list(snapshot.files())
        listed = Counter(file.path for file in files)
        partitions: dict[Partition, list[TableFile]] = {}
        for file in files:
            if listed[file.path] == 1 and self._is_small(file, snapshot.partition_by):
                partitions.setdefault(tuple(file.values.items()), []).append(file)
        lacking = list(left_out(snapshot, self.table.publication.schema))
        chosen: list[TableFile] = []
        for small in sorted(partitions.values(), key=len, reverse=True):
            chosen += self._several(small, lacking, after=chosen)
        return chosen

    def _is_small(self, file: TableFile, partition_by: Sequence[str]) -> bool:
        """Return whether the file is small, this sink's own, and of a partition as they are now."""
        return (
            self.table.wrote(file.path) and file.size_bytes < self.target_bytes // 2 and list(file.values) == list(partition_by)
        )

    def _several(self, small: Sequence[TableFile], lacking: Sequence[str], *, after: Sequence[TableFile]) -> list[TableFile]:
        """Return those of a partition's small files that are merged, if there are several. `after`: what the round has."""
        room_bytes, room = MOST_BYTES - sum(file.size_bytes for file in after), MOST_FILES - len(after)
        taken: list[TableFile] = []
        for file in sorted(small, key=lambda file: file.size_bytes) if len(small) > 1 else ():
            room_bytes -= file.size_bytes
            if room_bytes < 0 or len(taken) == room:
                break
            if self._may_be_merged(file, lacking):
                taken.append(file)
        return _worth_it(taken)

    def _may_be_merged(self, file: TableFile, lacking: Sequence[str]) -> bool:
        """Return whether the rows have the same hashes in a file of the newest columns, and lose no value there.

        `lacking`: columns of the table that the newest rows lack.
        """
        reader = self.table.reader
        return reader.finds_all(file) and reader.hashes_alike(file) and reader.filled_column([file], lacking) is None

    # --- writing and committing

    def _exchange(self, small: Sequence[TableFile], snapshot: TableSnapshot) -> None:
        attempt = replace(try_after(self.table.publication), generation=NO_GENERATION)
        version = snapshot.next_version
        writer = self.table.writer.with_files(prefix=compaction_prefix(version), target_bytes=self.target_bytes)
        rows = (batch for file in small for batch in self.table.reader.rows(file))
        schema, hashes_of = self.table.publication.schema, self.table.reader.hashes
        with self.table.log.reading():
            with WRITE.around(error=step_error, lost=step_error):
                pieces = writer.write(rows, attempt, schema=schema, snapshot=snapshot, hashes_of=hashes_of)
            self._require_same_rows(small, pieces)
        change = Change(
            added=[added(piece) for piece in pieces],
            removed=small,
            written_by=attempt.nonce,
            is_rewrite=True,
        )
        try:
            writer.show(pieces)  # just before the commit, and looked at
            with COMMIT.around(error=step_error, lost=step_error):
                snapshot.rewrite(change)
        except (Conflict, PenstockError):
            if not self._has_landed(version, attempt.nonce):
                raise  # what was written is left to a later round: nothing is removed here
        self.settled.add(attempt.nonce)
        self.table.sync(version)

    def _require_same_rows(self, files: Iterable[TableFile], pieces: Iterable[Staged]) -> None:
        """Raise ContentConflict unless the new files have the rows that `verify` finds in the old ones."""
        before = sum(map(self.table.reader.content, files), Totals())
        after = sum((piece.totals for piece in pieces), Totals())
        if (before.rows, before.digest) != (after.rows, after.digest):
            raise ContentConflict(
                f"Small files of the {self.table.log.title} hold {before.rows} rows with digest {before.digest:016x}, and "
                f"{after.rows} rows with digest {after.digest:016x} were written of them: nothing was committed.",
                remedy="Run `penstock verify`. If it finds no difference, take `compact` out of the sink's maintenance.",
            )

    def _has_landed(self, version: int, nonce: Nonce) -> bool:
        """Return whether the commit landed although it raised."""
        snapshot = self.table.newest()
        if snapshot is None:
            return False
        with self.table.log.reading():
            return snapshot.has_rewritten(version, nonce) is True

    # --- what came to nothing

    def _vain(self, snapshot: TableSnapshot) -> Iterator[str]:
        """Yield the names of files that compactions wrote and that can never be a part of the table."""
        made = ((file.name, compaction_in(file.name)) for file in self.table.area.files() if self.table.wrote(file.name))
        past = [(name, *of) for name, of in made if of is not None and of[0] < snapshot.next_version]  # others may still be made
        asked = [(name, version, nonce) for name, version, nonce in past if nonce not in self.settled]
        there = {file_of(file.path) for file in snapshot.files()} if asked else set[str]()
        for name, version, nonce in asked:
            if name not in there and snapshot.has_rewritten(version, nonce) is False:
                yield name
            else:  # older versions may have it, also if the table tells no more
                self.settled.add(nonce)


def _worth_it(ascending: Sequence[TableFile]) -> list[TableFile]:
    """Return those that are merged: a file if all smaller ones have at least half as many bytes together.

    So a row is written again some log(table ÷ batch) times until its file is large, as in the tiers of a log-structured merge
    tree (O'Neil et al. 1996). If each round took every small file, what a round costs would grow with the table.
    """
    smaller_bytes = [0, *accumulate(file.size_bytes for file in ascending)]
    worth = (place for place, file in enumerate(ascending) if place and file.size_bytes <= _TIER * smaller_bytes[place])
    return list(ascending[: max(worth, default=-1) + 1])
