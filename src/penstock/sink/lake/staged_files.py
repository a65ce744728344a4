"""`StagedFiles`: the decided files themselves become files of the table, beside those that are there or in their place."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from penstock.core.model import Staged, Totals
from penstock.errors import PublishFailed, StagedDataLost
from penstock.sink.lake.change import Decided
from penstock.sink.lake.log import Change, TableFile, TableLog, TableSnapshot
from penstock.sink.lake.staging import as_file, file_of, partition_values
from penstock.sink.lake.statistics import COLUMNS, STATISTICS, fingerprint
from penstock.sink.lake.write_mode import APPEND, REPLACE, TableContent
from penstock.sink.parquet.account import Area, PieceState
from penstock.sink.parquet.layout import PartitionColumn
from penstock.spark.schema import arrow_schema


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedFiles:
    """Files that tasks staged. They replace all that the table holds, the partitions that they belong to, or nothing."""

    log: TableLog
    area: Area
    decided: Decided

    def make(self, snapshot: TableSnapshot) -> Change:
        """Move the files into the table's directory. Return the change that adds them and removes those that they replace."""
        columns = self.decided.fitting_columns(snapshot)
        self._require_same_numbers(snapshot)
        added = [_checked(piece, columns) for piece in self._staged]
        removed = list(self._replaced(snapshot, added))
        content = self._content(snapshot, removed)
        self._move()
        self._require_there()
        is_exclusive = self.decided.mode.write != APPEND or self.decided.counts_first(snapshot)
        return Change(added=added, removed=removed, content=content, is_exclusive=is_exclusive)

    def is_waiting(self) -> bool:
        staged = [as_file(piece) for piece in self._staged if piece.inline is None]
        return any(self.area.state(piece) is PieceState.STAGED for piece in staged)

    def settle(self, *, committed: Change | None, seen: TableSnapshot | None, is_settled: bool) -> None:
        """Do nothing: the files are those of the decision, whoever commits them."""

    @property
    def _staged(self) -> Sequence[Staged]:
        return self.decided.publication.staged

    def _require_same_numbers(self, snapshot: TableSnapshot) -> None:
        """Raise PublishFailed if the table has other numbers for its columns than the files: readers would see null."""
        columns = arrow_schema(self.decided.publication.schema).names
        current = fingerprint(snapshot.field_ids, columns)
        if any(piece.ref.get(COLUMNS) != current for piece in self._staged):
            raise PublishFailed(
                f"Batch {self.decided.publication.batch.batch_id} is decided, but the {self.log.title} numbers its columns in "
                "another way than the files: it was created anew, or a column was removed and added again.",
                remedy=f"{snapshot.way_back} and start again: the batch is published then.",
            )

    def _replaced(self, snapshot: TableSnapshot, added: Sequence[TableFile]) -> Iterator[TableFile]:
        mode = self.decided.mode
        if mode.write == APPEND:
            return
        partitions = [file.values for file in added]
        yield from (file for file in snapshot.files() if mode.write == REPLACE or file.values in partitions)

    def _content(self, snapshot: TableSnapshot, removed: Sequence[TableFile]) -> TableContent | None:
        """Return what the marker is to count. Appended rows are not counted unless earlier ones were."""
        decided, publication = self.decided, self.decided.publication
        if not decided.counts(snapshot):
            return None
        displaced = Totals() if decided.mode.write == REPLACE else decided.content_of(removed)
        return decided.content_before(snapshot).after(decided.mode, publication.totals, displaced=displaced)

    def _move(self) -> None:
        """Move every file into the table's directory. Raises StagedDataLost."""
        gone = self.area.show([as_file(piece) for piece in self._staged])
        if gone:
            raise StagedDataLost(
                f"Batch {self.decided.publication.batch.batch_id} is decided, but {len(gone)} of its files for the "
                f"{self.log.title} are neither staged nor there, {gone[0].name} for one.",
                remedy="Restore the staging directory or the table's directory from a backup, then run `penstock recover`.",
            )

    def _require_there(self) -> None:
        """Raise StagedDataLost unless every file is there with the size that was decided, just before the commit."""
        for piece in map(as_file, self._staged):
            if self.area.state(piece) is not PieceState.SHOWN:
                raise StagedDataLost(
                    f"{self.log.uri}/{piece.name} was removed before it was committed.",
                    remedy="Restore the file from a backup, then run `penstock recover`; give every vacuum a retention.",
                )


# --- what the library does not check


def _checked(piece: Staged, columns: Sequence[PartitionColumn]) -> TableFile:
    """Return the file for the log. Raises PublishFailed for what would make the table unreadable: that lasts for ever."""
    values, statistics = partition_values(piece.name), str(piece.ref.get(STATISTICS, "{}"))
    try:
        _require_values(values, columns, piece.name)
        json.loads(statistics)
    except ValueError as cause:
        raise PublishFailed(
            f"The decided file {piece.name} does not fit the table: {cause}.",
            remedy="Restore the ledger from a backup: the decision is damaged.",
        ) from cause
    return TableFile(path=file_of(piece.name), size_bytes=piece.totals.size_bytes, values=values, statistics=statistics)


def _require_values(values: Mapping[str, str | None], columns: Sequence[PartitionColumn], name: str) -> None:
    """Raise ValueError unless there is a value of the right type for every partition column."""
    if list(values) != [column.name for column in columns]:
        raise ValueError(f"it has values for {', '.join(values) or 'no column'}")
    directories = name.split("/")[:-1]
    for column, directory in zip(columns, directories, strict=True):
        column.value_in(directory.partition("=")[2])
