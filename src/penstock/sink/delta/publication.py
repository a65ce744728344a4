"""Publishes a decision into a Delta table: files are moved into its directory, and one commit shows them and moves the marker."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.core.high_water_mark import HighWaterMark
from penstock.core.model import Position, Publication, Published, Staged
from penstock.errors import Conflict, LedgerMismatch, OutcomeUnknown, PublishFailed, Refused, Retryable, StagedDataLost
from penstock.sink.copied_ledger import require_no_copy
from penstock.sink.delta.log import DeltaLog, Snapshot, TableFile
from penstock.sink.delta.staging import as_file, file_of, partition_values
from penstock.sink.delta.statistics import STATISTICS
from penstock.sink.delta.table_schema import require_fit
from penstock.sink.parquet.account import Area, PieceState
from penstock.sink.parquet.layout import PartitionColumn, partition_columns
from penstock.spark.schema import arrow_schema

_TRIES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """The result of a publication, and the version of the table that certainly has it."""

    published: Published
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaPublication:
    """One publication with at least one piece. `since`: the last position that this run saw in the table."""

    log: DeltaLog
    area: Area
    publication: Publication
    since: Position

    def publish(self) -> Shown:
        """Commit unless the marker shows the publication. After any error the marker is read before anything is concluded (I12).

        Raises Retryable, OutcomeUnknown, PublishFailed, StagedDataLost, ContentConflict, LedgerMismatch.
        """
        failure: Conflict | OutcomeUnknown | None = None
        for _ in range(_TRIES):
            snapshot = self._look()
            if self._is_marked(snapshot):
                published = Published(totals=self.publication.totals, already=failure is None)
                return Shown(published=published, version=snapshot.version)
            if isinstance(failure, OutcomeUnknown):
                raise failure
            result = self._try(snapshot)
            if isinstance(result, int):
                return Shown(published=Published(totals=self.publication.totals, already=False), version=result)
            failure = result
        raise Retryable(
            f"Other writers changed the Delta table {self.log.uri} each time that a batch was to be committed: {failure}.",
            remedy="Try again, or let maintenance of the table run at another time.",
        )

    def _look(self) -> Snapshot:
        snapshot = self.log.newest()
        if snapshot is None:
            raise PublishFailed(
                f"The Delta table {self.log.uri} is gone.",
                remedy="Restore it from a backup and start again: the batch is decided.",
            )
        return snapshot

    def _try(self, snapshot: Snapshot) -> int | Conflict | OutcomeUnknown:
        """Commit. Return a version of the table that has it, or the error that leaves open whether it has."""
        columns = self._fitting_columns(snapshot)
        files = [_checked(piece, columns) for piece in self.publication.staged]
        if not self._move():
            return Conflict("another driver published the batch")
        self._require_there()
        try:
            return snapshot.commit(files, self.publication)
        except (Conflict, OutcomeUnknown) as failure:
            return failure

    # --- is it shown already?

    def _is_marked(self, snapshot: Snapshot) -> bool:
        publication = self.publication
        marker = snapshot.marker(publication.pipeline, publication.sink)
        self._require_no_older_copy(marker)
        if marker is None:
            return False
        if marker.ledger_id not in {None, publication.ledger_id}:  # I2: names and positions are no identity
            raise LedgerMismatch(
                f"The Delta table {self.log.uri} shows what ledger {marker.ledger_id} decided, up to its position "
                f"{marker.position}, but ledger {publication.ledger_id} publishes position {publication.position} there.",
                remedy="Stop the run of the ledger that is not wanted: what one of them decided would be there twice.",
            )
        if marker.position < publication.position:
            require_no_copy(publication, marker.position, place=f"The Delta table {self.log.uri}")
            return False
        self._require_same_batch(snapshot, marker)
        return True

    def _require_no_older_copy(self, marker: HighWaterMark | None) -> None:
        found = Position(0) if marker is None else marker.position
        if found < self.since:
            raise LedgerMismatch(
                f"The Delta table {self.log.uri} stands at position {found} of the ledger, but this run published there up to "
                f"position {self.since}: an older copy is in its place.",
                remedy="Put the newest copy back and start again. To go on without the rows that are missing, give the sink "
                "another name and another table.",
            )

    def _require_same_batch(self, snapshot: Snapshot, marker: HighWaterMark) -> None:
        """Raise LedgerMismatch if another batch was published at this position.

        The notes of the commit tell which, as long as the log has them. Besides, published pieces have left the staging.
        """
        publication, batch = self.publication, self.publication.batch
        found = snapshot.marker_of(publication.position, publication.pipeline, publication.sink)
        is_other = found is not None and (found.query_id, found.batch_id) != (batch.query_id, batch.batch_id)
        staged = [as_file(piece) for piece in publication.staged if piece.inline is None]
        if not is_other and not any(self.area.state(piece) is PieceState.STAGED for piece in staged):
            return
        raise LedgerMismatch(
            f"Batch {batch.batch_id} at position {publication.position} is not published in the Delta table {self.log.uri}, but "
            f"its marker stands at position {marker.position}: another ledger delivered there.",
            remedy="Use the ledger that belongs to this table, or give the sink another name and another table.",
        )

    # --- what the library does not check

    def _fitting_columns(self, snapshot: Snapshot) -> Sequence[PartitionColumn]:
        """Return the table's partition columns. Raises PublishFailed if the table would read the files as other rows."""
        publication, table = self.publication, snapshot.table_schema()
        try:
            require_fit(table, publication.schema, tuple(_partition_names(publication)), where=self.log.uri)
        except Refused as misfit:
            raise PublishFailed(
                f"Batch {publication.batch.batch_id} is decided, but: {misfit.message}",
                remedy="Alter the table back to what it was and start again: the batch is published then.",
            ) from misfit
        return partition_columns(arrow_schema(publication.schema), table.partition_by)

    def _move(self) -> bool:
        """Move every file into the table's directory. Return False if another driver committed what is gone from there."""
        gone = self.area.show([as_file(piece) for piece in self.publication.staged])
        if not gone or self._is_marked(self._look()):
            return not gone
        raise StagedDataLost(
            f"Batch {self.publication.batch.batch_id} is decided, but {len(gone)} of its files for the Delta table "
            f"{self.log.uri} are neither staged nor there, {gone[0].name} for one.",
            remedy="Restore the staging directory or the table's directory from a backup, then run `penstock recover`.",
        )

    def _require_there(self) -> None:
        """Raise StagedDataLost unless every file is there with the size that was decided, just before the commit."""
        for piece in map(as_file, self.publication.staged):
            if self.area.state(piece) is not PieceState.SHOWN:
                raise StagedDataLost(
                    f"{self.log.uri}/{piece.name} was removed before it was committed: a vacuum of files without any "
                    "retention did that.",
                    remedy="Restore the file from a backup, then run `penstock recover`.",
                )


def _partition_names(publication: Publication) -> Sequence[str]:
    """Return the columns that the batch was partitioned by when it was staged."""
    return list(partition_values(publication.staged[0].name))


def _checked(piece: Staged, columns: Sequence[PartitionColumn]) -> TableFile:
    """Return the file for the log. Raises PublishFailed for what would make the table unreadable: that lasts for ever."""
    values, statistics = partition_values(piece.name), str(piece.ref.get(STATISTICS, "{}"))
    try:
        _require_values(values, columns, piece.name)
        json.loads(statistics)
    except ValueError as cause:
        raise PublishFailed(
            f"The decided file {piece.name} does not fit the Delta table: {cause}.",
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
