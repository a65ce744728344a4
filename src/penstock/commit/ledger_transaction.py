"""Sinks in the ledger's own database: published by the transaction that appends the decision."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from tenacity import Retrying

from penstock.commit.publication import publication_of
from penstock.core.model import Entry, Publication, Published, SinkName
from penstock.protocols import Rider, Sink, Within


class Riding:
    """One append of a decided entry, and those of `sinks` whose home is the ledger's. `published`: what they did within it."""

    def __init__(self, sinks: Sequence[Sink], entry: Entry, *, home: str | None) -> None:
        riders = [sink for sink in sinks if home is not None and isinstance(sink, Rider) and sink.home == home]
        self._riders: list[tuple[Rider, Publication]] = [
            (rider, publication_of(entry, rider.name, ledger_id=entry.summary.ledger_id)) for rider in riders
        ]
        self.published: dict[SinkName, Published] = {}

    @property
    def within(self) -> Within | None:
        """For `Ledger.append`; None if nobody rides."""
        return self._publish if self._riders else None

    @contextmanager
    def aboard(self, retrying: Retrying) -> Iterator[None]:
        """Around the append: before it everybody gets ready, repeated as `retrying` says."""
        with ExitStack() as stack:
            for rider, publication in self._riders:
                retrying(self._board, stack, rider, publication)
            yield

    @staticmethod
    def _board(stack: ExitStack, rider: Rider, publication: Publication) -> None:
        stack.enter_context(rider.riding(publication))

    def _publish(self, transaction: object) -> None:
        for rider, publication in self._riders:
            self.published[publication.sink] = rider.publish_within(transaction, publication)
