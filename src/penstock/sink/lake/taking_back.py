"""Takes the files of later batches out of a table, by one commit that leaves the marker where it is."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace

from penstock.core.model import SinkName
from penstock.core.taken_back import TakenBack
from penstock.errors import Conflict, LedgerMismatch, OutcomeUnknown, Refused, Retryable
from penstock.sink.lake.log import Change, TableFile, TableLog, TableSnapshot
from penstock.sink.lake.write_mode import APPEND

_TRIES = 5


class TakesBackFiles:
    """The part of a sink into a table of an open format that takes batches back."""

    name: SinkName
    _log: TableLog

    @abstractmethod
    def _sync(self, version: int) -> None:
        """Make the commits up to `version` durable."""

    def require_taken_back_exactly(self, taken: TakenBack) -> None:
        if not any(publication.staged for publication in taken.publications):
            return
        snapshot = self._own_snapshot(taken)
        writes = {str(piece.ref.get("write", APPEND)) for publication in taken.publications for piece in publication.staged}
        if writes != {APPEND} or snapshot.content(taken.pipeline, taken.sink) is not None:
            raise Refused(
                f"Rows of the {self._log.title} have replaced others, and what they replaced is not in these batches.",
                remedy=f"Keep the sink ahead with `--keep {taken.sink}`.",
            )
        wanted, found = _names(taken), _files(snapshot, taken)
        if len(found) != len(wanted):
            raise Refused(
                f"{len(wanted) - len(found)} of {len(wanted)} files to take back are not in the {self._log.title}: something "
                "rewrote their rows into other files, or removed them.",
                remedy=f"`penstock verify FILE` says what differs. Else keep the sink ahead with `--keep {taken.sink}`.",
            )

    def take_back(self, taken: TakenBack) -> None:
        if not any(publication.staged for publication in taken.publications):
            return
        for _ in range(_TRIES):
            snapshot = self._own_snapshot(taken)
            found = _files(snapshot, taken)
            if not found:
                self._sync(snapshot.version)
                return
            marked = next(publication for publication in taken.publications if publication.staged)
            try:
                # I2: the marker stays at the newest of these batches, so that no driver that slept publishes one again
                self._sync(snapshot.commit(Change(removed=found, is_exclusive=True), replace(marked, staged=())))
            except (Conflict, OutcomeUnknown):
                continue  # the next look tells
        raise Retryable(
            f"Other writers changed the {self._log.title} each time that batches were to be taken back.",
            remedy="Let maintenance of the table run at another time, and try again.",
        )

    def _own_snapshot(self, taken: TakenBack) -> TableSnapshot:
        snapshot = self._log.newest()
        marker = None if snapshot is None else snapshot.marker(taken.pipeline, taken.sink)
        if snapshot is None or marker is None or marker.ledger_id != taken.ledger_id:
            found = "there is no marker of the sink" if marker is None else f"its marker is of ledger {marker.ledger_id}"
            raise LedgerMismatch(
                f"The {self._log.title} is not this ledger's: {found}, expected one of {taken.ledger_id}.",
                remedy="Put the table back that belongs to this ledger.",
            )
        return snapshot


def _names(taken: TakenBack) -> set[str]:
    return {_file_name(piece.name) for publication in taken.publications for piece in publication.staged}


def _files(snapshot: TableSnapshot, taken: TakenBack) -> Sequence[TableFile]:
    wanted = _names(taken)
    return [file for file in snapshot.files() if _file_name(file.path) in wanted]


def _file_name(path: str) -> str:
    return path.rpartition("/")[2]
