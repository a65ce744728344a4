"""What all sinks have in common that fill one table of a database by transactions."""

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from penstock.errors import StagedDataLost
from penstock.model import ONLY_ACCOUNT, AccountName, PipelineName, Position, Publication, SinkKind
from penstock.sink.spool.sink import SpooledSink


class TableSink(SpooledSink):
    """The common part of a transactional `Sink`.

    No transaction is open while pieces are fetched from a store or removed there: that may take longer than a database lets one
    stand idle, and others wait for its locks.
    """

    @property
    def kind(self) -> SinkKind:
        """Transactional: rows and marker commit together."""
        return SinkKind.TRANSACTIONAL

    @property
    def exactly_once(self) -> bool:
        """True."""
        return True

    @abstractmethod
    def remembers(self, account: AccountName, *, pipeline: PipelineName) -> Position | None:
        """Where the marker of this sink stands."""

    @contextmanager
    def riding(self, publication: Publication) -> Iterator[None]:
        """As `Rider.riding`. A driver killed after the commit leaves the pieces to the next start, which publishes again."""
        with self._spool.fetched(publication.staged, pipeline=publication.pipeline):
            yield
        self._spool.discard(publication.staged, pipeline=publication.pipeline)

    @contextmanager
    def _fetched(self, publication: Publication) -> Iterator[None]:
        """Around the transaction that publishes. What the table shows already is not fetched: it may be gone."""
        staged, pipeline = publication.staged, publication.pipeline
        with ExitStack() as fetched:
            if self._spool.lies_remote(staged, pipeline=pipeline) and not self._shows(publication):
                try:
                    fetched.enter_context(self._spool.fetched(staged, pipeline=pipeline))
                except StagedDataLost:  # or published meanwhile by another driver, which then removes it
                    if not self._shows(publication):
                        raise
            yield

    def _shows(self, publication: Publication) -> bool:
        return (self.remembers(ONLY_ACCOUNT, pipeline=publication.pipeline) or 0) >= publication.position
