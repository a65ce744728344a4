"""How a pipeline's driver is looked after, noted by its supervisor in the pipeline's home."""

from dataclasses import dataclass, replace

from penstock.observe.driver import driver_of
from penstock.observe.note import read_note, write_note

_KIND = "supervisor"


@dataclass(frozen=True, slots=True, kw_only=True)
class Supervision:
    """One pipeline as its supervisor saw it last, at `at_ms`.

    `state`: the driver is `running`, it is `waiting` for its next start (`next_start_ms`), it was `given up`, it is `done`, or it
    was `stopped` with the supervisor, or the supervisor itself is `gone`. `restarts`: how often the driver was started again.
    `ended`: how it ended last, in words. `log`: where its messages are.
    """

    owner: str
    at_ms: int
    state: str
    restarts: int
    ended: str | None
    next_start_ms: int | None
    log: str


def note_supervision(home: str, found: Supervision) -> None:
    """Write `found` into `home`, in place of the one before, if that is possible."""
    write_note(home, _KIND, found)


def supervision(home: str) -> Supervision | None:
    """Return what a supervisor noted in `home`; None if there is nothing that this version can read."""
    found = read_note(home, _KIND, Supervision)
    if found is None or found.state not in {"running", "waiting"}:
        return found
    is_gone = driver_of(found.owner, opened_at_ms=found.at_ms).state == "stopped"
    return replace(found, state="gone") if is_gone else found
