"""What all sinks have in common that fill one table of a database by transactions."""

from penstock.model import SinkKind
from penstock.sink.spool.sink import SpooledSink


class TableSink(SpooledSink):
    """The common part of a transactional `Sink`."""

    @property
    def kind(self) -> SinkKind:
        """Transactional: rows and marker commit together."""
        return SinkKind.TRANSACTIONAL

    @property
    def exactly_once(self) -> bool:
        """True."""
        return True
