"""Named fault points: no-ops until `PENSTOCK_FAULTS` arms them.

`PENSTOCK_FAULTS="point=kind[@occurrence][,…]"` with these kinds:

- `kill`: SIGKILL this process before the operation
- `error`: raise the store's error before the operation
- `lost`: do the operation, then raise the error of a lost answer
- `stall:SECONDS`: sleep, then do the operation
- `torn`: write a part, then kill

The occurrence counts from 1 in each process and defaults to 1. A fault fires once per process. With `PENSTOCK_FAULTS_ONCE=DIR`
(an existing directory) it fires once in all processes that share the directory; a file `point=kind` there says that it fired. A
file `point=stall.over` beside it ends a stall early.

Each point is declared once, beside the operation it surrounds, and used once; `tests/architecture` checks both.
"""

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from penstock.errors import OutcomeUnknown, PenstockError, Retryable, Usage

VARIABLE = "PENSTOCK_FAULTS"
ONCE_VARIABLE = "PENSTOCK_FAULTS_ONCE"


class FaultKind(str, Enum):
    """What an armed point does."""

    KILL = "kill"
    ERROR = "error"
    LOST = "lost"
    STALL = "stall"
    TORN = "torn"


class Writable(Protocol):
    """The methods of a file that `FaultPoint.write` calls."""

    def write(self, data: bytes, /) -> object:
        """Append bytes."""
        ...

    def flush(self) -> object:
        """Flush buffered bytes to the operating system."""
        ...


@dataclass(frozen=True, slots=True)
class Armed:
    """One armed fault: the `occurrence`-th time `point` is reached, do `kind`."""

    point: str
    kind: FaultKind
    occurrence: int
    stall_s: float


_points: dict[str, "FaultPoint"] = {}
_texts: list[str] = []
_taken_over: list[str] = []
_armed: dict[str, Armed] = {}
_reached: dict[str, int] = {}


def _lost(point: str) -> PenstockError:
    return OutcomeUnknown(f"The answer of {point} was lost.", remedy="Read the store and compare.")


def _error(point: str) -> PenstockError:
    return Retryable(f"{point} failed before it did anything.", remedy="Try again.")


class FaultPoint:
    """A step of the protocol at which a process may die, fail or stall."""

    def __init__(self, name: str, meaning: str, *, tears: bool = False) -> None:
        if name in _points:
            raise ValueError(f"fault point {name} is declared twice")
        self.name = name
        self.meaning = meaning
        self.tears = tears
        _points[name] = self

    @property
    def kinds(self) -> tuple[FaultKind, ...]:
        """Kinds that this point supports: `torn` only where it writes a file."""
        return tuple(kind for kind in FaultKind if kind is not FaultKind.TORN or self.tears)

    @contextmanager
    def around(
        self,
        *,
        error: Callable[[str], BaseException] = _error,
        lost: Callable[[str], BaseException] = _lost,
    ) -> Iterator[None]:
        """Surround the operation of this point. `error` and `lost` build the exception that the store would raise."""
        fault = self._due(torn=False) if _armed else None
        if fault is None:
            yield
            return
        if fault.kind is FaultKind.KILL:
            _kill()
        if fault.kind is FaultKind.ERROR:
            raise error(self.name)
        if fault.kind is FaultKind.STALL:
            _stall(fault)
        yield
        if fault.kind is FaultKind.LOST:
            raise lost(self.name)

    def write(self, file: Writable, data: bytes) -> None:
        """Write `data`. If `torn` is due: write the first half, flush it and kill the process."""
        if _armed and self._due(torn=True) is not None:
            file.write(data[: len(data) // 2])
            file.flush()
            _kill()
        file.write(data)

    def _due(self, *, torn: bool) -> Armed | None:
        fault = _armed.get(self.name)
        if fault is None or (fault.kind is FaultKind.TORN) is not torn:
            return None
        _reached[self.name] = _reached.get(self.name, 0) + 1
        if _reached[self.name] != fault.occurrence or not _claim(fault):
            return None
        return fault


def _claim(fault: Armed) -> bool:
    file = _claim_file(fault)
    if file is None:
        return True
    try:
        os.close(os.open(file, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def _claim_file(fault: Armed) -> str | None:
    directory = os.environ.get(ONCE_VARIABLE)
    return None if directory is None else os.path.join(directory, f"{fault.point}={fault.kind.value}")


def _stall(fault: Armed) -> None:
    end_s = time.monotonic() + fault.stall_s
    over = f"{_claim_file(fault)}.over"
    while (left_s := end_s - time.monotonic()) > 0 and not os.path.exists(over):
        time.sleep(min(left_s, 0.01))


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def parse(text: str) -> tuple[Armed, ...]:
    """Return the faults that `text` (the value of PENSTOCK_FAULTS) arms, at most one per point. Raises Usage."""
    faults = tuple(_parse_one(part.strip()) for part in text.split(",") if part.strip())
    names = [fault.point for fault in faults]
    for name in names:
        if names.count(name) > 1:
            raise Usage(f"{VARIABLE} names the point {name} twice, expected once.", remedy="Take one of them out.")
    return faults


def _parse_one(part: str) -> Armed:
    point, _, rest = part.partition("=")
    what, _, occurrence = rest.partition("@")
    kind, _, seconds = what.partition(":")
    try:
        fault = Armed(point, FaultKind(kind), int(occurrence or 1), float(seconds or 0))
        if fault.occurrence < 1:
            raise ValueError(occurrence)  # noqa: TRY301 - reported below like every other mistake
    except ValueError:
        kinds = ", ".join(kind.value for kind in FaultKind)
        raise Usage(
            f"{VARIABLE} holds {part!r}, expected point=kind[@occurrence] with a kind of {kinds} and an occurrence from 1 on.",
            remedy="Correct or unset the variable.",
        ) from None
    return fault


def arm(text: str) -> None:
    """Arm exactly the faults of `text` in this process and count occurrences from here on; an empty text disarms all."""
    faults = parse(text)
    _texts[:] = [text]
    _armed.clear()
    _reached.clear()
    _armed.update({fault.point: fault for fault in faults})


def armed() -> tuple[Armed, ...]:
    """Return the faults armed in this process."""
    return tuple(_armed.values())


def export_faults() -> Mapping[str, str]:
    """Return what `import_faults` needs to arm the same faults in another process on any machine; empty when none is armed."""
    if not _armed:
        return {}
    once = os.environ.get(ONCE_VARIABLE)
    return {VARIABLE: _texts[0]} | ({} if once is None else {ONCE_VARIABLE: once})


def import_faults(transported: Mapping[str, str]) -> None:
    """Arm the faults that the driver's `export_faults` returned; an empty mapping disarms what an earlier call armed.

    If the same faults are armed already, their occurrences keep counting.
    """
    text = transported.get(VARIABLE, "")
    if _texts == [text] or not (text or _taken_over):
        return
    if ONCE_VARIABLE in transported:
        os.environ[ONCE_VARIABLE] = transported[ONCE_VARIABLE]
    arm(text)
    _taken_over[:] = [text] if text else []


def points() -> tuple[FaultPoint, ...]:
    """Return every fault point declared by the modules imported so far, sorted by name."""
    return tuple(_points[name] for name in sorted(_points))


arm(os.environ.get(VARIABLE, ""))
