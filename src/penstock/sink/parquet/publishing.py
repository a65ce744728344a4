"""Publishes a decision into one area: all of it, once, by rolling forward."""

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.core.high_water_mark import MarkedFile, Marker
from penstock.core.model import AccountName, Publication, Staged
from penstock.errors import LedgerMismatch, StagedDataLost
from penstock.sink.copied_ledger import require_no_copy
from penstock.sink.parquet.account import Area, PieceState


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountPublication:
    """The part of a publication for one account. `fresh`: this run staged it, after it had published the batch before."""

    account: AccountName
    area: Area
    pieces: tuple[Staged, ...]
    publication: Publication

    fresh: bool = False

    def is_shown(self) -> bool:
        """Return whether the account shows the publication already. Called for all accounts before any file moves.

        So if one account has lost a file, no other one shows a part of the batch. For a fresh publication to a remote account,
        only the marker is read, and only if it has inline files, since a late second put of these could bring back what
        maintenance removed; `roll_forward` finds files that are gone. Raises StagedDataLost, ContentConflict, and LedgerMismatch
        if another ledger published at this position.
        """
        if self.fresh and self.area.is_remote:
            return any(piece.inline is not None for piece in self.pieces) and self._is_marked()
        if self._is_marked():
            return True
        gone = [piece for piece in self.pieces if self.area.state(piece) is PieceState.GONE]
        if not gone:
            return False
        self._require_marked(gone)
        return True

    def roll_forward(self) -> None:
        """Publish all pieces, then advance the marker. Raises StagedDataLost for pieces that are gone.

        But if the marker shows the publication already, maintenance removed them, and nothing is lost.
        """
        gone = self.area.show(self.pieces)
        if gone:
            self._require_marked(gone)
        self.area.advance(self._mark())

    def _mark(self) -> Marker:
        publication = self.publication
        files = [MarkedFile(name=piece.name, rows=piece.totals.rows, size_bytes=piece.totals.size_bytes) for piece in self.pieces]
        return Marker(
            pipeline=publication.pipeline,
            sink=publication.sink,
            account=self.account,
            position=publication.position,
            generation=publication.generation,
            query_id=publication.batch.query_id,
            batch_id=publication.batch.batch_id,
            ledger_id=publication.ledger_id,
            files=tuple(files),
        )

    def _is_marked(self) -> bool:
        marker = self.area.marker()
        if marker is None:
            return False
        # I2: whatever the positions are; a marker of an older Penstock names no ledger, and the start has compared it
        if marker.ledger_id not in {None, self.publication.ledger_id}:
            raise LedgerMismatch(
                f"Account {self.account!r} shows what ledger {marker.ledger_id} decided, up to its position {marker.position}, "
                f"but ledger {self.publication.ledger_id} publishes position {self.publication.position} there.",
                remedy="Stop the run of the ledger that is not wanted: what one of them decided would be there twice.",
            )
        if marker.position < self.publication.position:  # I2
            require_no_copy(self.publication, marker.position, place=f"Account {self.account!r}")
            return False
        self._require_same_ledger(marker)
        return True

    def _require_marked(self, gone: Sequence[Staged]) -> None:
        """Raise StagedDataLost unless the marker shows the publication: a concurrent publisher may just have finished it."""
        if self._is_marked():
            return
        batch = self.publication.batch.batch_id
        raise StagedDataLost(
            f"Batch {batch} is decided, but {len(gone)} of its files for account {self.account!r} are neither staged nor "
            f"published, {gone[0].name} for one.",
            remedy="Restore the staging directory or the account from a backup, then run `penstock recover`.",
        )

    def _require_same_ledger(self, marker: Marker) -> None:
        """Raise LedgerMismatch unless this position's marker is of this batch, and none of its pieces is still staged.

        Marked pieces have left the staging area, and one position is one batch: anything else is another ledger's work. If this
        position's marker is gone below a higher one, it may have been removed as old. A newer run owns the pipeline then, which
        is reported, too.
        """
        batch = self.publication.batch
        own = self.area.marker_of(self.publication.position)
        found = None if own is None else (own.account, own.query_id, own.batch_id)
        same = found == (self.account, batch.query_id, batch.batch_id)
        staged = [piece for piece in self.pieces if piece.inline is None]
        if same and not any(self.area.state(piece) is PieceState.STAGED for piece in staged):
            return
        raise LedgerMismatch(
            f"Batch {batch.batch_id} at position {self.publication.position} is not published in account {self.account!r}, but "
            f"its marker stands at position {marker.position} (batch {marker.batch_id}): another ledger delivered there.",
            remedy="Use the ledger that belongs to these accounts, or give the sink another name and empty accounts.",
        )
