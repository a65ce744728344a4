"""What all sinks have in common that fill one table of a database by transactions."""

from collections.abc import Iterator, Sequence

from penstock.model import AccountName, Finding, PipelineName, SinkKind, Waiting
from penstock.sink.spool.sink import SpooledSink


class TableSink(SpooledSink):
    """The common part of a transactional `Sink`. A database keeps everything, so nothing in it expires."""

    @property
    def kind(self) -> SinkKind:
        """Transactional: rows and marker commit together."""
        return SinkKind.TRANSACTIONAL

    @property
    def exactly_once(self) -> bool:
        """True."""
        return True

    def waiting(self, account: AccountName, *, pipeline: PipelineName) -> Iterator[Waiting]:  # noqa: ARG002 - there is one
        """What the spool holds."""
        return self._spool.waiting(pipeline)

    def lifecycle(self) -> Sequence[Finding]:
        """Nothing."""
        return []
