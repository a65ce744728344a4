"""Verification of one sink against the ledger, while a driver may append, publish and change the sink."""

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import takewhile
from typing import Any, Protocol, runtime_checkable

from tenacity import stop_after_attempt

from penstock.commit.append import Sleep, with_backoff
from penstock.commit.publication import newest_given, publications, settled_at
from penstock.commit.removal import removal_acts
from penstock.commit.rewind import rewound_since
from penstock.core.model import (
    AccountName,
    Entry,
    Position,
    Publication,
    Removal,
    SinkName,
    SinkReport,
    Staged,
    Totals,
)
from penstock.errors import Retryable
from penstock.protocols import Ledger, Sink, SinkDecisions

TRIES = 10
"""Tries of a sink that raises Retryable: about a minute."""
NOT_COMPARED = SinkReport(accounts={}, problems=())
"""The report of a sink that cannot tell newer rows from others."""
_LOOKS = 5
_OLDER_ARGUMENT = "known"


@runtime_checkable
class VerifiesSince(Protocol):
    """A sink that can tell what newer batches brought from the rest, without reading the rest."""

    def verify_since(self, decisions: SinkDecisions, since: Publication) -> SinkReport:
        """Do as `verify` for what was decided after `since`. `decisions` hold nothing older; what is older is not read."""
        ...


def verify_sink(sink: Sink, decisions: SinkDecisions, *, sleep: Sleep) -> SinkReport:
    """Return the sink's report. Raises what the sink raises; Retryable only if every try raised it."""
    older = _OLDER_ARGUMENT in inspect.signature(sink.verify).parameters
    look = partial(_verify_older, sink) if older else sink.verify
    report: SinkReport = with_backoff(stop_after_attempt(TRIES), sleep)(look, decisions)
    return report


def verify_sink_since(sink: Sink, decisions: SinkDecisions, since: Publication, *, sleep: Sleep) -> SinkReport:
    """Return the sink's report of what was decided after `since`, or `NOT_COMPARED`. Raises as `verify_sink`."""
    if not isinstance(sink, VerifiesSince):
        return NOT_COMPARED
    newer = DecisionsSince(decisions, since.position)
    report: SinkReport = with_backoff(stop_after_attempt(TRIES), sleep)(sink.verify_since, newer, since)
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


NOTHING_PUBLISHED = Position(0)


class LedgerDecisions:
    """The `SinkDecisions` of `sink`, for a verification that began when `tail` was the ledger's newest entry."""

    def __init__(self, ledger: Ledger, sink: SinkName, *, tail: Entry | None) -> None:
        self._ledger, self._sink = ledger, sink
        self.published_at = NOTHING_PUBLISHED if tail is None else _published_at(tail, sink)

    def totals(self, position: Position) -> Mapping[AccountName, Totals]:
        """Takes two reads of the ledger. Raises Retryable if the entry was pruned meanwhile."""
        tail = self._ledger.tail()
        if tail is None or position == NOTHING_PUBLISHED:
            return {}
        is_newest = position >= newest_given(tail.summary, self._sink)
        entry = tail if is_newest else self._ledger.read(rewound_since(self._ledger, position, tail=tail) or position)
        if entry is None:
            raise Retryable(
                f"The ledger's entry at position {position} was pruned while sink {self._sink!r} was verified.",
                remedy="Verify again.",
            )
        removed = tail.summary.removed.get(self._sink, {})
        decided = entry.summary.totals.get(self._sink, {})
        return {account: totals - removed.get(account, Totals()) for account, totals in decided.items()}

    def publications(self, position: Position | None = None) -> Iterator[Publication]:
        decided = publications(self._ledger.newest_first(), self._sink)
        return (each for each in decided if position is None or each.position <= position)

    def removals(self) -> Iterator[Removal]:
        return (removal for act in removal_acts(self._ledger) for removal in act.removals if removal.sink == self._sink)


class DecisionsSince:
    """The `SinkDecisions` after a position: how many the ledger retains before it costs nothing."""

    def __init__(self, decisions: SinkDecisions, since: Position) -> None:
        self._decisions, self._since = decisions, since
        self.published_at = decisions.published_at

    def totals(self, position: Position) -> Mapping[AccountName, Totals]:
        """Return the sums over the decisions, less the files that were removed on purpose."""
        removals, sums = list(self.removals()), dict[AccountName, Totals]()
        for publication in self.publications(position):
            for piece in publication.staged:
                if not any(_is_removed(piece, publication.position, removal) for removal in removals):
                    sums[piece.account] = sums.get(piece.account, Totals()) + piece.totals
        return sums

    def publications(self, position: Position | None = None) -> Iterator[Publication]:
        newer = takewhile(lambda each: each.position > self._since, self._decisions.publications())
        return (each for each in newer if position is None or each.position <= position)

    def removals(self) -> Iterator[Removal]:
        return self._decisions.removals()


def _is_removed(piece: Staged, position: Position, removal: Removal) -> bool:
    in_range = any(first <= position <= last for first, last in removal.decided)
    return removal.account == piece.account and (in_range or piece.name in removal.files)


def _published_at(tail: Entry, sink: SinkName) -> Position:
    """Return the position up to which the sink shows everything. While it is given earlier batches, the newest may be missing."""
    backfill = tail.summary.backfills.get(sink)
    settled = settled_at(tail.summary)
    return settled if backfill is None or backfill.ended else min(settled, Position(backfill.newest - 1))
