"""`MergeByKey`: rows of a batch replace those of the table with their keys, delete them, or are added where there are none.

Files that hold a replaced row are rewritten without it, together with the batch's rows, into new files of this driver's own. The
commit adds those and removes the old ones; it is made on the very snapshot that was read, and fails after any other commit. The
library's own MERGE would do that, too, but tells nobody which rows were replaced, so nothing could be verified; it writes bounds
of floating point numbers that hide NaN, and makes no commit where nothing changes.

What a try wrote and did not commit lies in the table's directory unseen, under names with the batch and a nonce of the try. Once
the batch is published, such files of its other tries are removed: none of these can commit any more.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from penstock.core.condition_value import bound_condition, condition_holds
from penstock.core.deletes import split_deletes
from penstock.core.faults import FaultPoint
from penstock.core.model import Nonce, Publication, Staged, Totals
from penstock.core.update_condition import UpdateCondition
from penstock.errors import Conflict, ContentConflict, PenstockError
from penstock.sink.lake.batch_keys import BatchKeys, Mask, Matches, Numbers, older_than
from penstock.sink.lake.change import Decided
from penstock.sink.lake.log import Change, TableFile, TableLog, TableSnapshot
from penstock.sink.lake.staging import file_of
from penstock.sink.lake.statistics import fingerprint
from penstock.sink.lake.table_writer import LEFT, TableWriter, added, remove_unseen, step_error, try_after
from penstock.sink.parquet.layout import attempt_of, is_owned
from penstock.sink.parquet.table import table_schema
from penstock.sink.table.marker import minus

MATCH = FaultPoint("lakekeys.match", "The keys of a file of the table are compared with those of a decided batch.")
REWRITE = FaultPoint("lakekeys.rewrite", "The rows of a decided batch, and those that stay of files with its keys, are written.")

_log = logging.getLogger(__name__)


Origin: TypeAlias = tuple[tuple[str, ...], bytes, str | None, tuple[str, ...]]
"""What files were made of: paths of the table's files, a mask of the batch's rows that count, the columns' `fingerprint`, and the
partition columns.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewritten:
    """What one try wrote. `of`: what the files were made of. `displaced`: the rows that they leave out."""

    of: Origin
    nonce: Nonce
    pieces: Sequence[Staged]
    displaced: Totals


@dataclass(slots=True, kw_only=True)
class MergeByKey:
    """One publication by `upsert` or `insert_if_absent`. `spooled` yields the batch's rows, from the first one at each call.

    `totals`: those of the rows that it yields, where these were made of the batch's; None where they are the batch's.
    """

    decided: Decided
    spooled: "Callable[[], Iterator[pa.RecordBatch]]"
    writer: TableWriter
    log: TableLog
    totals: Totals | None = None
    _keys: BatchKeys | None = None
    _condition: UpdateCondition | None = None
    _deleting: list[Mask] = field(default_factory=list)
    _matches: dict[str, Matches] = field(default_factory=dict)
    _written: list[Rewritten] = field(default_factory=list)
    _newest: Rewritten | None = None

    def make(self, snapshot: TableSnapshot) -> Change:
        """Write files to replace those of the snapshot that hold keys of the batch, and move them into the table's directory."""
        self.decided.fitting_columns(snapshot)
        keys = self._batch_keys()
        matches = self._matches_in(snapshot, keys)
        removed = [file for file, found in matches if len(found.replaced)]
        self.decided.require_none_lost(snapshot, removed)
        counted = keys.counted()
        if self._deleting:
            counted &= ~np.concatenate(self._deleting)
        for _, found in matches:
            counted[found.left_out] = False
        rewritten = self._rewritten(removed, counted, snapshot)
        content = self.decided.content_before(snapshot)
        self._show(rewritten)  # just before the commit, and looked at: a vacuum without any retention removes what no version has
        return Change(
            added=[added(piece) for piece in rewritten.pieces],
            removed=removed,
            content=content.after(self.decided.mode, self._totals, displaced=rewritten.displaced),
            written_by=rewritten.nonce,
            is_exclusive=True,
        )

    def is_waiting(self) -> bool:
        """Return False: pieces in the spool may be those of a published batch that were not removed."""
        return False

    def settle(self, *, committed: Change | None, seen: TableSnapshot | None, is_settled: bool) -> None:
        publication = self.decided.publication
        nonce = None if committed is None else committed.written_by
        try:
            if seen is not None and (self._written or not is_settled):
                with self.log.reading():
                    nonce = seen.written_by(publication.position, publication.pipeline, publication.sink)
            for name in () if nonce is None else self._leftovers(nonce, everywhere=not is_settled):
                remove_unseen(self.log, name)
        except (PenstockError, OSError) as error:
            _log.warning(LEFT, self.log.title, "what another try wrote", error)

    # --- which rows count, and which they meet

    @property
    def _totals(self) -> Totals:
        return self.decided.publication.totals if self.totals is None else self.totals

    @property
    def _is_upsert(self) -> bool:
        return self.decided.mode.write == "upsert"

    def _batch_keys(self) -> BatchKeys:
        if self._keys is None:
            schema, mode = table_schema(self.decided.publication.schema), self.decided.mode
            self._deleting = []
            rows = self._spooled(self._deleting)
            self._condition = None if mode.update_when is None else bound_condition(mode.update_when, schema)
            also = () if self._condition is None else self._condition.new_columns
            there = () if self._condition is None else self._condition.old_columns
            if mode.sequence_by is None:
                self._keys = BatchKeys.of(rows, schema, mode.key, last=self._is_upsert, also=also, there=there)
            else:
                self._keys = BatchKeys.in_sequence(rows, schema, mode.key, mode.sequence_by, also=also, there=there)
            require_all(self._keys.rows, self.decided.publication, expected=self._totals.rows)
        return self._keys

    def _spooled(self, deleting: list[Mask] | None = None) -> "Iterator[pa.RecordBatch]":
        """Yield the batch's rows; note in `deleting` which of them delete, where any can."""
        if not self.decided.mode.deletes:
            yield from self.spooled()
            return
        for batch in self.spooled():
            rows, deletes = split_deletes(batch)
            if deleting is not None:
                deleting.append(np.asarray(deletes))
            yield rows

    def _matches_in(self, snapshot: TableSnapshot, keys: BatchKeys) -> list[tuple[TableFile, Matches]]:
        """Return each file that may hold keys of the batch, with what matches."""
        files = list(snapshot.files(keys.range(snapshot.partition_by)))
        for file in files:
            if file.path not in self._matches:
                self._matches[file.path] = self._match(file, keys)
        return [(file, self._matches[file.path]) for file in files]

    def _match(self, file: TableFile, keys: BatchKeys) -> Matches:
        with MATCH.around(error=step_error, lost=step_error):
            there = self.decided.reader.rows(file, keys.columns)
            if self.decided.mode.sequence_by is not None or self._condition is not None:
                return keys.compared_with(there, self._stays)
            return keys.found_in(there) if self._is_upsert else keys.existing_in(there)

    def _stays(self, old: "pa.Table", new: "pa.Table", numbers: Numbers) -> Mask:
        """Return which `old` rows stay beside `new` ones with their key: newer ones, and those for which the condition fails."""
        sequence_by, stays = self.decided.mode.sequence_by, np.zeros(len(old), np.bool_)
        if sequence_by is not None:
            stays |= older_than(old, new, sequence_by)
        if self._condition is not None:
            fails = ~np.asarray(condition_holds(self._condition, old, new), dtype=np.bool_)
            stays |= fails & ~np.concatenate(self._deleting)[numbers] if self._deleting else fails
        return stays

    # --- writing

    def _rewritten(self, removed: Sequence[TableFile], counted: Mask, snapshot: TableSnapshot) -> Rewritten:
        """Write these files and rows, or return what the last try wrote if it was made of the same."""
        columns = table_schema(self.decided.publication.schema).names
        paths, numbers = tuple(file.path for file in removed), fingerprint(snapshot.field_ids, columns)
        of = (paths, np.packbits(counted).tobytes(), numbers, snapshot.partition_by)
        if self._newest is None or self._newest.of != of:
            with REWRITE.around(error=step_error, lost=step_error):
                self._newest = self._write(removed, counted, snapshot, of)
            self._written.append(self._newest)
        return self._newest

    def _write(self, removed: Sequence[TableFile], counted: Mask, snapshot: TableSnapshot, of: Origin) -> Rewritten:
        publication = self.decided.publication
        attempt, displaced = try_after(publication), [self._counted_otherwise(removed)]

        def remaining() -> "Iterator[pa.RecordBatch]":
            for batch, stays in self._rows(removed, counted):
                displaced.append(self.decided.reader.totals(batch.filter(pa.array(~stays))))
                yield batch.filter(pa.array(stays))

        pieces = self.writer.write(remaining(), attempt, schema=publication.schema, snapshot=snapshot)
        return Rewritten(of=of, nonce=attempt.nonce, pieces=pieces, displaced=sum(displaced, Totals()))

    def _counted_otherwise(self, removed: Sequence[TableFile]) -> Totals:
        """Return how much more the marker counts of the files than their rows count in new ones, with the batch's columns."""
        reader = self.decided.reader
        files = [file for file in removed if not self.decided.reader.hashes_alike(file)]
        rows = (batch for file in files for batch in reader.rows(file))
        return minus(self.decided.content_of(files), sum(map(reader.totals, rows), Totals()))

    def _rows(self, removed: Sequence[TableFile], counted: Mask) -> "Iterator[tuple[pa.RecordBatch, Mask]]":
        """Yield all rows of the files, then those of the batch, each time with the mask of those that stay."""
        for file in removed:
            yield from _without(self._matches[file.path].replaced, self.decided.reader.rows(file))
        yield from _without(np.flatnonzero(~counted), self._spooled())

    def _show(self, rewritten: Rewritten) -> None:
        """Move the files into the table's directory. Raises Conflict if a sweep took them, so that they are written again."""
        try:
            self.writer.show(rewritten.pieces)
        except Conflict:
            self._newest = None
            raise

    # --- collecting

    def _leftovers(self, nonce: str, *, everywhere: bool) -> Iterator[str]:
        """Yield the files of this publication's other tries: this object's and, if `everywhere`, all others in the directory."""
        yield from (file_of(piece.name) for each in self._written if each.nonce != nonce for piece in each.pieces)
        if everywhere:
            yield from (file.name for file in list(self.writer.area.files()) if self._is_of_other_try(file.name, nonce))

    def _is_of_other_try(self, name: str, nonce: str) -> bool:
        publication, attempt = self.decided.publication, attempt_of(name)
        if attempt is None or not is_owned(name, self.writer.owner) or attempt.nonce == nonce:
            return False
        return (attempt.generation, attempt.batch_id) == (publication.generation, publication.batch.batch_id)


def require_all(rows: int, publication: Publication, *, expected: int) -> None:
    """Raise ContentConflict unless there are as many rows as expected."""
    if rows != expected:  # I1, I2
        raise ContentConflict(
            f"Batch {publication.batch.batch_id} has {expected} rows, but {rows} are staged.",
            remedy="Restore the spool from a backup: it is damaged.",
        )


def _without(dropped: Numbers, batches: "Iterator[pa.RecordBatch]") -> "Iterator[tuple[pa.RecordBatch, Mask]]":
    """Yield the batches, each with the mask of its rows that stay: those whose numbers are not among `dropped`."""
    start = 0
    for batch in batches:
        first, last = np.searchsorted(dropped, [start, start + batch.num_rows])
        stays = np.ones(batch.num_rows, np.bool_)
        stays[dropped[first:last] - start] = False
        yield batch, stays
        start += batch.num_rows
