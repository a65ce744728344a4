"""Publishing a decision into one area: all of it, once, by rolling forward."""

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.core.high_water_mark import MarkedFile, Marker
from penstock.core.model import AccountName, Publication, Staged
from penstock.errors import LedgerMismatch, StagedDataLost
from penstock.sink.copied_ledger import require_no_copy
from penstock.sink.parquet.account import Area, PieceState


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What a publication is for one account. `fresh`: it was staged by this very run, and the batch before was published."""

    account: AccountName
    area: Area
    pieces: tuple[Staged, ...]
    publication: Publication

    fresh: bool = False

    def is_shown(self) -> bool:
        """Whether it was published before. Called for all accounts before anything moves, so that a loss shows nothing at all.

        What is fresh is not looked for in a remote account, unless publishing it twice would do harm: what is gone is found while
        it is published. Raises StagedDataLost, ContentConflict, and LedgerMismatch if another ledger published at this position.
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
        """Show every piece, then raise the mark: a piece that is gone below the mark was removed by maintenance, not lost."""
        gone = self.area.show(self.pieces)
        if gone:
            self._require_marked(gone)
        self.area.advance(self._mark())

    def _is_marked(self) -> bool:
        marker = self.area.marker()
        if marker is None:
            return False
        self._require_named_ledger(marker)
        if marker.position < self.publication.position:
            require_no_copy(self.publication, marker.position, place=f"Account {self.account!r}")
            return False
        self._require_same_ledger(marker)
        return True

    def _require_marked(self, gone: Sequence[Staged]) -> None:
        """A concurrent publisher may have finished between two looks; only the mark tells."""
        if self._is_marked():
            return
        batch = self.publication.batch.batch_id
        raise StagedDataLost(
            f"Batch {batch} is decided, but {len(gone)} of its files for account {self.account!r} are neither staged nor "
            f"published, {gone[0].name} for one.",
            remedy="Restore the staging directory or the account from a backup, then run `penstock recover`.",
        )

    def _require_named_ledger(self, marker: Marker) -> None:
        """Whatever its position. A mark that names no ledger, as an older Penstock wrote it, was compared by the start (I2)."""
        if marker.ledger_id not in {None, self.publication.ledger_id}:
            raise LedgerMismatch(
                f"Account {self.account!r} shows what ledger {marker.ledger_id} decided, up to its position {marker.position}, "
                f"but ledger {self.publication.ledger_id} publishes position {self.publication.position} there.",
                remedy="Stop the run of the ledger that is not wanted: what one of them decided would be there twice.",
            )

    def _require_same_ledger(self, marker: Marker) -> None:
        """What is marked has left the staging area, and one position is one batch: anything else is another ledger's doing.

        A mark that is missing below a higher one may be of long ago: then a newer run owns the pipeline, and that will be told.
        """
        batch = self.publication.batch
        own = self.area.marker_of(self.publication.position)
        told = None if own is None else (own.account, own.query_id, own.batch_id)
        same = told == (self.account, batch.query_id, batch.batch_id)
        staged = [piece for piece in self.pieces if piece.inline is None]
        if same and not any(self.area.state(piece) is PieceState.STAGED for piece in staged):
            return
        raise LedgerMismatch(
            f"Batch {batch.batch_id} at position {self.publication.position} is not published in account {self.account!r}, but "
            f"its marker stands at position {marker.position} (batch {marker.batch_id}): another ledger delivered there.",
            remedy="Use the ledger that belongs to these accounts, or give the sink another name and empty accounts.",
        )

    def _mark(self) -> Marker:
        return Marker(
            pipeline=self.publication.pipeline,
            sink=self.publication.sink,
            account=self.account,
            position=self.publication.position,
            generation=self.publication.generation,
            query_id=self.publication.batch.query_id,
            batch_id=self.publication.batch.batch_id,
            ledger_id=self.publication.ledger_id,
            files=tuple(
                MarkedFile(name=piece.name, rows=piece.totals.rows, size_bytes=piece.totals.size_bytes) for piece in self.pieces
            ),
        )
