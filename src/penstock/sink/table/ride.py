"""Riding in the ledger's transaction: the staged pieces stay until that transaction is seen to be committed."""

from penstock.model import PipelineName, Position, Publication, SinkName, Staged
from penstock.sink.spool import Spool
from penstock.sink.table.marker import Marks


class Ride:
    """Remembers the last publication of `sink` that rode along. The ledger commits later, or not at all, and tells nobody."""

    def __init__(self, spool: Spool, *, sink: SinkName) -> None:
        self._spool, self._sink = spool, sink
        self._last: tuple[Position, tuple[Staged, ...]] | None = None

    @property
    def pending(self) -> bool:
        """Whether pieces may be left of it."""
        return self._last is not None

    def note(self, publication: Publication) -> None:
        """It rides now."""
        self._last = (publication.position, publication.staged)

    def discard(self, marks: Marks, pipeline: PipelineName, *, before: Position | None = None) -> None:
        """Remove the pieces of the last ride if its marker is committed. `before`: what rides now, maybe it again."""
        if self._last is None:
            return
        position, pieces = self._last
        marker = marks.read(pipeline, self._sink)
        if marker is not None and marker.position >= position and (before is None or position < before):
            self._spool.discard(pieces, pipeline=pipeline)
        self._last = None
