"""How publications run: side by side or in turn, at once or beside the next batch, or in the transaction of the decision."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from threading import Lock

from tenacity import Retrying

from penstock.commit.publication import publication_of
from penstock.core.model import BatchId, Entry, LedgerId, Publication, Published, SinkName
from penstock.errors import NotPublishedYet, PenstockError, Retryable
from penstock.protocols import InTransaction, PublishesInLedger, Sink
from penstock.support.combined_error import join, urgency

Executor = Callable[[Callable[[Sink], Published | PenstockError], Sequence[Sink]], Iterable[Published | PenstockError]]
"""Publishes every sink and returns the outcomes in their order: `map` in turn, `map_concurrently` side by side."""
DeferredPublish = Callable[[Callable[[], None]], Callable[[], None]]
"""Starts a publication; returns a function that waits for its end and raises what it raised, on every call. One at a time."""


Timed = Callable[[SinkName], AbstractContextManager[object]]
"""Surrounds the publication into a sink, to measure it."""


def publish_in(
    sink: Sink, *, share: Callable[[Sink], Publication], retrying: Retrying, timed: Timed = nullcontext
) -> Published | PenstockError:
    """Publish the sink's `share` in it, as often as `retrying` says. An error is returned: it keeps no other sink from it."""
    publication = share(sink)
    try:
        with timed(sink.name):
            published: Published = retrying(sink.publish, publication)
    except NotPublishedYet as error:  # the sink itself has waited for long enough
        return error
    except Retryable as error:
        waiting = NotPublishedYet(
            f"Sink {sink.name!r} could not publish batch {publication.batch.batch_id}: {error.message}",
            remedy=f"{error.remedy} The batch is decided; the next start publishes it.",
        )
        waiting.__cause__ = error
        return waiting
    except PenstockError as error:
        return error
    return published


def publish_entry(
    entry: Entry, sink: Sink, *, ledger_id: LedgerId | None, retrying: Retrying, timed: Timed = nullcontext
) -> Published | PenstockError:
    """Publish the sink's share of `entry`, of the ledger with that identity, as `publish_in`."""
    share = publication_of(entry, sink.name, ledger_id=ledger_id)
    return publish_in(sink, share=lambda _: share, retrying=retrying, timed=timed)


def all_published(
    batch_id: BatchId, sinks: Sequence[Sink], outcomes: Sequence[Published | PenstockError]
) -> dict[SinkName, Published]:
    """Return the outcome of every sink. Raises one error for all sinks that failed; its `by_sink` holds the error of each."""
    published: dict[SinkName, Published] = {}
    failures: dict[SinkName, PenstockError] = {}
    for sink, outcome in zip(sinks, outcomes, strict=True):
        if isinstance(outcome, PenstockError):
            failures[sink.name] = outcome
        else:
            published[sink.name] = outcome
    if failures:
        raise _unpublished(batch_id, failures)
    return published


def _unpublished(batch_id: BatchId, failures: Mapping[SinkName, PenstockError]) -> PenstockError:
    ranked = dict(sorted(failures.items(), key=lambda failure: urgency(failure[1])))
    first, *others = ranked.values()
    if others:
        each = (f"Sink {sink!r}: {type(error).__name__}: {error.message}" for sink, error in ranked.items())
        message = f"Batch {batch_id} is decided, and {len(ranked)} sinks did not publish it. {' '.join(each)}"
        first = join([first, *others], message=message)
    first.by_sink = {str(sink): error.as_fields() for sink, error in ranked.items()}
    return first


class Outstanding:
    """The newest publication that was started. One thread starts them; any thread may wait, at any time.

    Concurrent callers share one wait and all receive its exception, as does every later caller.
    """

    def __init__(self) -> None:
        self._waiting = Lock()
        self._join: Callable[[], None] | None = None

    def wait_for(self, join: Callable[[], None]) -> None:
        """Take what `DeferredPublish` returned. Called after the publication before it was waited for."""
        with self._waiting:
            self._join = join

    def wait(self) -> None:
        """Wait until the publication has ended. Raises what it raised."""
        with self._waiting:
            if self._join is not None:
                self._join()
                self._join = None


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
    def within(self) -> InTransaction | None:
        """The argument `within` of `Ledger.append`; None if no sink publishes in the transaction of the append."""
        return self._publish if self._sinks else None

    @contextmanager
    def entered(self, retrying: Retrying) -> Iterator[None]:
        """Surround the append. Before it, every sink fetches its rows; `retrying` repeats that if it fails."""
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
