"""How a pipeline's driver is looked after, noted by its supervisor in the pipeline's home."""

from dataclasses import dataclass, replace

from penstock.observe.driver import driver_of
from penstock.observe.note import read_note, write_note

_ACTIVE, _STANDBY = "supervisor", "standby"


@dataclass(frozen=True, slots=True, kw_only=True)
class Supervision:
    """One pipeline as its supervisor saw it last, at `at_ms`.

    `state`: the driver is `running`, it is `waiting` for its next start (`next_start_ms`), it is a `standby` that waits for its
    turn, it was `given up`, it is `done`, or it was `stopped` with the supervisor, or the supervisor itself is `gone`.
    `restarts`: how often the driver was started again.
    `ended`: how it ended last, in words. `log`: where its messages are.
    """

    owner: str
    at_ms: int
    state: str
    restarts: int
    ended: str | None
    next_start_ms: int | None
    log: str


def note_supervision(home: str, found: Supervision, *, is_active: bool = True) -> None:
    """Write `found` into `home`, if that is possible, in place of the one before of the active supervisor, or of the standby."""
    write_note(home, _ACTIVE if is_active else _STANDBY, found)


def supervision(home: str) -> Supervision | None:
    """Return what the active supervisor noted in `home`; None if there is nothing that this version can read."""
    found, standby = _noted(home, _ACTIVE), _noted(home, _STANDBY)
    return None if _is_replaced(found, by=standby) else found


def standby(home: str) -> Supervision | None:
    """Return what the newest supervisor that is not the active one noted in `home`; None as `supervision`."""
    found, active = _noted(home, _STANDBY), _noted(home, _ACTIVE)
    return None if _is_replaced(found, by=active) else found


def _is_replaced(found: Supervision | None, *, by: Supervision | None) -> bool:
    """Return whether the same supervisor noted something else since then: it took over, or is a standby again."""
    return found is not None and by is not None and found.owner == by.owner and found.at_ms < by.at_ms


def _noted(home: str, kind: str) -> Supervision | None:
    found = read_note(home, kind, Supervision)
    if found is None or found.state not in {"running", "waiting", "standby"}:
        return found
    is_gone = driver_of(found.owner, opened_at_ms=found.at_ms).state == "stopped"
    return replace(found, state="gone") if is_gone else found
