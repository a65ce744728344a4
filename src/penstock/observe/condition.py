"""How a pipeline does, in one word for whoever is on call: healthy, behind, stopped or failed; and what to do next."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum
from itertools import chain

from penstock.observe.look import Look
from penstock.observe.state_size import MEMORY
from penstock.observe.status import Status
from penstock.support.formatting import roughly

LATE_MS = 15 * 60 * 1000
"""Input that has waited for longer is late. So says the alert PenstockFallsBehind, too."""


class State(str, Enum):
    """The worst first."""

    FAILED = "failed"
    BEHIND = "behind"
    GROWING = "growing"
    STOPPED = "stopped"
    HEALTHY = "healthy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """The state of a pipeline, why it is that, and what a person does next; None where nobody has to do anything.

    `also`: that the state of the query grows, where something worse comes first, which may follow from that.
    """

    state: State
    text: str
    next_step: str | None = None
    also: "Condition | None" = None


def condition_of(look: Look, *, now_ms: int) -> Condition:
    """Return the worst that a look found."""
    if look.status is None:
        remedy = "A driver cannot read them either. Bring back what does not answer; nothing is lost meanwhile."
        return Condition(state=State.FAILED, text=look.error or "Ledger and checkpoint could not be read.", next_step=remedy)
    status = look.status
    growing = next(_growing(status), None)
    worst = next(chain(_refusals(status), _failures(status), _delays(status, now_ms=now_ms)), None)
    if worst is not None:
        return replace(worst, also=growing)
    if status.driver is not None and status.driver.state == "stopped":
        next_step = "Start it where it should run: `penstock run FILE`."
        return Condition(state=State.STOPPED, text=status.text, next_step=next_step, also=growing)
    if growing is not None:
        return growing
    return Condition(state=State.HEALTHY, text=status.text)


def _refusals(status: Status) -> Iterator[Condition]:
    """Yield why the next start would be refused, or would wait, the cause before its consequences."""
    for place in status.places:
        if place.trouble is not None:
            name = " ".join(filter(None, (place.sink, place.account)))
            remedy = "Bring it back: batches wait for it, and are not lost."
            next_step = remedy if place.state == "unreachable" else "`penstock doctor FILE` shows what the place holds."
            yield Condition(state=State.FAILED, text=f"Sink {name}: {place.trouble}", next_step=next_step)
    if status.health == "conflict":
        yield Condition(
            state=State.FAILED, text=status.text, next_step="`penstock doctor FILE` says why a start would be refused."
        )
    yield from _losses(status)


def _losses(status: Status) -> Iterator[Condition]:
    """Yield which input is gone that was not delivered."""
    for lag in status.lag:
        if lag.gaps:
            text = f"{lag.lost:,} records of topic {lag.topic} are gone and were never delivered."
            next_step = "The next start is refused: read about `InputLost` before you accept the gap."
            yield Condition(state=State.FAILED, text=text, next_step=next_step)
    for journal in status.journals:
        if journal.lost:
            text = f"{journal.lost:,} events of journal {journal.journal} are gone and were never delivered."
            yield Condition(state=State.FAILED, text=text, next_step="`penstock journal verify DIR` says what is left.")
    for table in status.tables:
        if table.forgotten:
            text = f"The ledger of table {table.table} has forgotten batches with {table.lost:,} rows that were never delivered."
            yield Condition(state=State.FAILED, text=text, next_step="Read about `InputLost` in docs/howto/chain.md.")
    for stream in status.streams:
        if stream.gap is not None:
            next_step = "The next start is refused: read about `InputLost` in docs/howto/kinesis.md."
            yield Condition(state=State.FAILED, text=stream.gap, next_step=next_step)


def _failures(status: Status) -> Iterator[Condition]:
    """Yield how the newest run failed, and what it left undone."""
    error = status.failure
    if error is not None:
        yield Condition(state=State.FAILED, text=error.message, next_step=error.remedy)
    noted = status.supervision
    if noted is not None and noted.state in {"given up", "gone"}:
        what = f"its last driver {noted.ended}" if noted.ended else "it is gone"
        yield Condition(state=State.FAILED, text=f"The supervisor is {noted.state}: {what}.", next_step=f"See {noted.log}.")
    if status.replaying is not None and not status.is_running:
        text = f"What was replayed at position {status.replaying} of the ledger is not in every sink yet."
        next_step = "The next start publishes it, or `penstock recover FILE`."
        yield Condition(state=State.FAILED, text=text, next_step=next_step)
    if status.lacking and not status.is_running:
        text = f"Batch {status.unsettled} is decided and not in {', '.join(status.lacking)} yet."
        next_step = "The next start publishes it, or `penstock recover FILE`."
        yield Condition(state=State.FAILED, text=text, next_step=next_step)


def _delays(status: Status, *, now_ms: int) -> Iterator[Condition]:
    """Yield what waits for too long."""
    is_stopped = status.driver is not None and status.driver.state == "stopped"
    state = State.STOPPED if is_stopped else State.BEHIND
    next_step = "Start it: `penstock run FILE`." if is_stopped else "Give it cores or larger batches, if it does not catch up."
    for lag in status.lag:
        if lag.is_near_loss:
            text = f"Retention may soon remove records of topic {lag.topic} that were not delivered."
            yield Condition(
                state=State.BEHIND, text=text, next_step="Raise the topic's retention first, then look why they wait."
            )
    for table in status.tables:
        if table.is_near_loss:
            text = f"The ledger of table {table.table} may soon forget batches that were not delivered."
            yield Condition(state=State.BEHIND, text=text, next_step="Look why they wait.")
    for stream in status.streams:
        if stream.is_near_loss:
            text = f"Records of stream {stream.stream} that were not delivered may soon expire."
            next_step = "Raise the stream's retention first, then look why they wait."
            yield Condition(state=State.BEHIND, text=text, next_step=next_step)
    for source, topic, behind_ms in _waiting(status, now_ms=now_ms):
        if behind_ms > LATE_MS:
            text = f"Source {source} is {behind_ms // 60_000:,} minutes behind{f' in {topic}' if topic else ''}."
            yield Condition(state=state, text=text, next_step=next_step)
    for unknown in status.lag_unknown:
        yield Condition(state=State.BEHIND, text=f"What waits is not known: {unknown}", next_step="Bring the source back.")


def _growing(status: Status) -> Iterator[Condition]:
    """Yield that the state of the query comes near to a limit, or is beyond it."""
    near = None if status.state is None else status.state.near
    if near is None:
        return
    place = "in memory" if near.of == MEMORY else "on disk"
    when = "is beyond its limit" if near.is_reached else f"reaches its limit in {roughly(near.reached_in_ms or 0)}"
    next_step = "`penstock state FILE` shows what grows. Put a watermark on the source, or give it more memory."
    yield Condition(state=State.GROWING, text=f"The state of the query {when} {place}.", next_step=next_step)


def _waiting(status: Status, *, now_ms: int) -> Iterator[tuple[str, str, int]]:
    """Yield source, input and the age of the oldest input that waits."""
    for lag in status.lag:
        yield lag.source, lag.topic, lag.behind_ms or 0
    for journal in status.journals:
        yield journal.source, journal.journal, journal.behind_ms or 0
    for table in status.tables:
        yield table.source, table.table, table.behind_ms or 0
    for stream in status.streams:
        yield stream.source, stream.stream, stream.behind_ms or 0
    for files in status.waiting:
        yield files.source, "", 0 if files.oldest_ms is None else now_ms - files.oldest_ms
