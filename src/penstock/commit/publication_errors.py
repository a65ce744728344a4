"""The error of a publication that failed in one sink or in several."""

from collections.abc import Mapping, Sequence

from penstock.core.model import BatchId, Published, SinkName
from penstock.errors import PenstockError
from penstock.protocols import Sink
from penstock.support.combined_error import join, urgency


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
