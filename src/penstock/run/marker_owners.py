"""The ledger that each account belongs to by its own marker, for `penstock status`, looked up within a time limit."""

import time
from collections.abc import Sequence
from threading import Thread

from penstock.core.high_water_mark import HighWaterMark
from penstock.core.model import PipelineName, Position, SinkName
from penstock.errors import PenstockError, Refused
from penstock.observe.status import PlaceState
from penstock.protocols import HasMarker, Ledger, Sink
from penstock.run.assembly import DeliveryPlan, sinks_of
from penstock.run.ledger_match import Place, ledger_mismatch, published_rows, require_marker_not_older
from penstock.spec.sink import Console, Memory

LOOK_S = 10.0
"""Seconds to wait for all places together."""

_Answers = dict[Place, HighWaterMark | PenstockError | None]


def places_of(plan: DeliveryPlan, ledger: Ledger, *, within_s: float = LOOK_S) -> tuple[PlaceState, ...]:
    """Return every account of every sink that has a marker. A place that fails or does not answer in time is `unreachable`.

    Loads the sinks, and Arrow with them, unless none has a place. Raises what the ledger raises.
    """
    if all(isinstance(sink, Memory | Console) for sink in plan.settings.sinks.values()):
        return ()
    try:
        sinks = [sink for sink in sinks_of(plan) if isinstance(sink, HasMarker)]
    except PenstockError as error:  # such as a client library that is not installed on this machine
        names = map(SinkName, plan.settings.sinks)
        return tuple(PlaceState(sink=name, account=None, state="unreachable", trouble=str(error)) for name in names)
    rows = published_rows(ledger, sinks)
    found = _marks(sinks, plan.pipeline, within_s=within_s)
    places = [(sink.name, account) for sink in sinks for account in sink.accounts]
    return tuple(
        _state(place, found[place], ledger, rows.get(place, 0)) if place in found else _silent(place, within_s)
        for place in places
    )


def _marks(sinks: Sequence[Sink], pipeline: PipelineName, *, within_s: float) -> _Answers:
    """Return the markers that arrive in time. A sink that hangs keeps a thread, which ends with the process."""
    found = _Answers()
    threads = [Thread(target=_look, args=(sink, pipeline, found), daemon=True) for sink in sinks]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + within_s
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return found.copy()


def _look(sink: Sink, pipeline: PipelineName, found: _Answers) -> None:
    assert isinstance(sink, HasMarker)
    try:
        for account in sink.accounts:
            try:
                found[sink.name, account] = sink.high_water_mark(account, pipeline=pipeline)
            except PenstockError as error:
                found[sink.name, account] = error
    finally:
        sink.close()


def _silent(place: Place, within_s: float) -> PlaceState:
    sink, account = place
    return PlaceState(sink=sink, account=account, state="unreachable", trouble=f"No answer within {within_s:g} seconds.")


def _state(place: Place, mark: HighWaterMark | PenstockError | None, ledger: Ledger, rows: int) -> PlaceState:
    """Return the state of a place in which `rows` rows were published."""
    sink, account = place
    if isinstance(mark, PenstockError):
        return PlaceState(sink=sink, account=account, state="unreachable", trouble=str(mark))
    if mark is None:
        try:
            require_marker_not_older(None if rows else Position(0), rows, None, sink=sink, account=account)
        except Refused as lost:
            return PlaceState(sink=sink, account=account, state="lost", trouble=lost.message)
        return PlaceState(sink=sink, account=account, state="empty")
    mismatch = ledger_mismatch(mark, ledger, sink=sink, account=account)
    if mismatch is None:
        return PlaceState(sink=sink, account=account, state="own", mark=mark.position)
    return PlaceState(sink=sink, account=account, state=mismatch.state, mark=mark.position, trouble=mismatch.error.message)
