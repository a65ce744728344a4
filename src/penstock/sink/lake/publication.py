"""Publishes a decision into a table by one commit, which shows the rows and moves the marker."""

from dataclasses import dataclass

from penstock.core.high_water_mark import HighWaterMark
from penstock.core.model import Position, Publication, Published
from penstock.errors import Conflict, LedgerMismatch, OutcomeUnknown, PublishFailed, Retryable, StagedDataLost
from penstock.sink.copied_ledger import require_no_copy
from penstock.sink.lake.change import MakesChange
from penstock.sink.lake.log import Change, TableLog, TableSnapshot

_TRIES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """The result of a publication, and a version of the table that certainly has it.

    `committed`: the change, if this try committed it; else `seen`, the snapshot that shows it.
    """

    published: Published
    version: int
    committed: Change | None = None
    seen: TableSnapshot | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LakePublication:
    """One publication that changes the table. `since`: the last position that this run saw in the table."""

    log: TableLog
    changes: MakesChange
    publication: Publication
    since: Position

    def publish(self) -> Shown:
        """Commit unless the marker shows the publication. After any error the marker is read before anything is concluded (I12).

        If another commit came between the look and this one, the change is made anew on the next look.

        Raises Retryable, OutcomeUnknown, PublishFailed, StagedDataLost, ContentConflict, LedgerMismatch.
        """
        failure: Conflict | OutcomeUnknown | None = None
        for _ in range(_TRIES):
            snapshot = self._look()
            if self._is_marked(snapshot):
                published = Published(totals=self.publication.totals, already=failure is None)
                return Shown(published=published, version=snapshot.version, seen=snapshot)
            if isinstance(failure, OutcomeUnknown):
                raise failure
            result = self._try(snapshot)
            if isinstance(result, Shown):
                return result
            failure = result
        raise Retryable(
            f"Other writers changed the {self.log.title} each time that a batch was to be committed: {failure}.",
            remedy="Try again, or let maintenance of the table run at another time.",
        )

    def _look(self) -> TableSnapshot:
        snapshot = self.log.newest()
        if snapshot is None:
            raise PublishFailed(
                f"The {self.log.title} is gone.",
                remedy="Restore it from a backup and start again: the batch is decided.",
            )
        return snapshot

    def _try(self, snapshot: TableSnapshot) -> Shown | Conflict | OutcomeUnknown:
        """Commit. Return the result, or the error that leaves open whether the publication is there."""
        try:
            change = self.changes.make(snapshot)
            version = snapshot.commit(change, self.publication)
        except (Conflict, OutcomeUnknown) as failure:
            return failure
        except StagedDataLost:
            if not self._is_marked(self._look()):
                raise
            return Conflict("another driver published the batch")
        return Shown(published=Published(totals=self.publication.totals, already=False), version=version, committed=change)

    # --- is it shown already?

    def _is_marked(self, snapshot: TableSnapshot) -> bool:
        publication = self.publication
        marker = snapshot.marker(publication.pipeline, publication.sink)
        self._require_no_older_copy(marker)
        if marker is None:
            self._require_not_moved(snapshot, None)
            return False
        if marker.ledger_id not in {None, publication.ledger_id}:  # I2: names and positions are no identity
            raise LedgerMismatch(
                f"The {self.log.title} shows what ledger {marker.ledger_id} decided, up to its position "
                f"{marker.position}, but ledger {publication.ledger_id} publishes position {publication.position} there.",
                remedy="Stop the run of the ledger that is not wanted: what one of them decided would be there twice.",
            )
        if marker.position < publication.position:  # I2
            require_no_copy(publication, marker.position, place=f"The {self.log.title}")
            self._require_not_moved(snapshot, marker)
            return False
        self._require_same_batch(snapshot, marker)
        return True

    def _require_no_older_copy(self, marker: HighWaterMark | None) -> None:
        found = Position(0) if marker is None else marker.position
        if found < self.since:
            raise LedgerMismatch(
                f"The {self.log.title} stands at position {found} of the ledger, but this run published there up to "
                f"position {self.since}: an older copy is in its place.",
                remedy="Put the newest copy back and start again. To go on without the rows that are missing, give the sink "
                "another name and another table.",
            )

    def _require_not_moved(self, snapshot: TableSnapshot, marker: HighWaterMark | None) -> None:
        """Raise LedgerMismatch if a former commit published this position, though the marker is lost or stands before it (I2).

        Looked for only until this run has seen a position in the table: the notes of former commits have to be read for it.
        """
        publication = self.publication
        if self.since:
            return
        found = snapshot.marker_of(publication.position, publication.pipeline, publication.sink)
        if found is None or found.ledger_id not in {None, publication.ledger_id}:
            return
        now = self._look().marker(publication.pipeline, publication.sink)
        if now is not None and now.position >= publication.position:
            return  # another driver published it since the look; a list of commits shows that at once
        stands = "is gone" if marker is None else f"stands at position {marker.position}"
        raise LedgerMismatch(
            f"A commit of the {self.log.title} published position {publication.position} of the ledger, but the marker {stands}: "
            "somebody else changed it.",
            remedy=f"Put the marker of sink {publication.sink!r} back to what that commit says and start again: the batch would "
            "be there twice.",
        )

    def _require_same_batch(self, snapshot: TableSnapshot, marker: HighWaterMark) -> None:
        """Raise LedgerMismatch if another batch was published at this position.

        The commit's notes name the batch, as long as the log has them. Also, a piece that is still staged was not published.
        """
        publication, batch = self.publication, self.publication.batch
        found = snapshot.marker_of(publication.position, publication.pipeline, publication.sink)
        is_other = found is not None and (found.query_id, found.batch_id) != (batch.query_id, batch.batch_id)
        if not is_other and not self.changes.is_waiting():
            return
        raise LedgerMismatch(
            f"Batch {batch.batch_id} at position {publication.position} is not published in the {self.log.title}, but "
            f"its marker stands at position {marker.position}: another ledger delivered there.",
            remedy="Use the ledger that belongs to this table, or give the sink another name and another table.",
        )
