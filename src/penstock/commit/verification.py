"""Verification of one sink against the ledger, tried again while a driver changes the sink."""

import inspect
from dataclasses import replace
from functools import partial
from typing import Any

from penstock.commit.append import Sleep, patiently
from penstock.core.model import SinkReport
from penstock.protocols import Sink, SinkDecisions

TRIES = 10
"""Tries of a sink that raises Retryable: about a minute."""
_LOOKS = 5
_OLDER_ARGUMENT = "known"


def verify_sink(sink: Sink, decisions: SinkDecisions, *, sleep: Sleep) -> SinkReport:
    """Return the sink's report. Raises what the sink raises; Retryable only if every try raised it."""
    older = _OLDER_ARGUMENT in inspect.signature(sink.verify).parameters
    look = partial(_verify_older, sink) if older else sink.verify
    report: SinkReport = patiently(TRIES, sleep)(look, decisions)
    return report


def _verify_older(sink: Any, decisions: SinkDecisions) -> SinkReport:
    """Verify a user-written sink of the older protocol, which takes `expected` and `known` before it reads its content.

    A difference may come from a running driver. So the sink is compared with and without the newest decision, and again as long
    as decisions are added.
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
