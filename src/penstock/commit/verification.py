"""One sink against the ledger, again where its place changed too much under the look, and by older sinks' own method."""

import inspect
from dataclasses import replace
from typing import Any

from penstock.commit.append import Sleep, patiently
from penstock.core.model import SinkReport
from penstock.protocols import Sink, SinkDecisions

TRIES = 10
"""How often a sink is looked at that answers Retryable: about a minute."""
_LOOKS = 5
_OLDER_ARGUMENT = "known"


def verify_sink(sink: Sink, decisions: SinkDecisions, *, sleep: Sleep) -> SinkReport:
    """The sink's report. Raises what the sink raises; Retryable only if it was raised at every try."""
    look = _verify_older if _OLDER_ARGUMENT in inspect.signature(sink.verify).parameters else _verify
    report: SinkReport = patiently(TRIES, sleep)(look, sink, decisions)
    return report


def _verify(sink: Sink, decisions: SinkDecisions) -> SinkReport:
    return sink.verify(decisions)


def _verify_older(sink: Any, decisions: SinkDecisions) -> SinkReport:
    """A user-written sink that compares with `expected` and `known`, which it is given before it looks.

    It is asked again while a difference may come from a driver: with the newest decision and without, as long as decisions are
    added.
    """
    for _ in range(_LOOKS):
        newest = next(decisions.publications(), None)
        positions = {decisions.published_at, decisions.published_at if newest is None else newest.position}
        for position in sorted(positions):
            report: SinkReport = sink.verify(expected=decisions.totals(position), known=decisions.publications(position))
            if report.ok:
                return replace(report, as_of=position)
        if next(decisions.publications(), None) == newest:
            break
    return replace(report, as_of=max(positions))
