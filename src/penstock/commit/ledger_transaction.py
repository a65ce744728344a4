"""Sinks in the ledger's own database, published by the transaction that appends the decision."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from tenacity import Retrying

from penstock.commit.publication import publication_of
from penstock.core.model import Entry, Publication, Published, SinkName
from penstock.protocols import PublishesInLedger, Sink, Within


class LedgerTransaction:
    """The append of one decision, and the sinks that publish in its transaction: those whose `home` is the ledger's.

    `published` holds what each of them did.
    """

    def __init__(self, sinks: Sequence[Sink], entry: Entry, *, home: str | None) -> None:
        in_ledger = [sink for sink in sinks if home is not None and isinstance(sink, PublishesInLedger) and sink.home == home]
        self._sinks: list[tuple[PublishesInLedger, Publication]] = [
            (sink, publication_of(entry, sink.name, ledger_id=entry.summary.ledger_id)) for sink in in_ledger
        ]
        self.published: dict[SinkName, Published] = {}

    @property
    def within(self) -> Within | None:
        """The argument of `Ledger.append` of that name; None if no sink publishes in it."""
        return self._publish if self._sinks else None

    @contextmanager
    def entered(self, retrying: Retrying) -> Iterator[None]:
        """Enter around the append. Before it every sink fetches its rows, again as `retrying` says."""
        with ExitStack() as stack:
            for sink, publication in self._sinks:
                retrying(self._enter, stack, sink, publication)
            yield

    @staticmethod
    def _enter(stack: ExitStack, sink: PublishesInLedger, publication: Publication) -> None:
        stack.enter_context(sink.ledger_transaction(publication))

    def _publish(self, transaction: object) -> None:
        for sink, publication in self._sinks:
            self.published[publication.sink] = sink.publish_within(transaction, publication)
