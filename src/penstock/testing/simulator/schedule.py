"""Schedules (the shape of a world and the faults in it, as a value that can be replayed), and how fakes meet them."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from random import Random
from typing import Protocol, TypeVar

from penstock.errors import Usage

T = TypeVar("T")


class Kind(str, Enum):
    """The kind of a fault at a driver's step."""

    ERROR = "error"
    """The operation fails before it did anything."""
    LOST = "lost"
    """The operation happens, but its answer is lost."""
    KILL = "kill"
    """The driver dies before the operation."""
    KILL_AFTER = "kill-after"
    """The driver dies after the operation."""
    STALL = "stall"
    """The driver pauses before the operation, is taken for dead, and continues later: a zombie beside a new driver."""
    OUTAGE = "outage"
    """The operation happens and its answer is lost; then every operation of every driver fails for some steps."""
    RIVAL = "rival"
    """Another driver is started while this one goes on."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of `kind` for the driver that takes `step`.

    A stall or an outage ends `steps` later. A stall with None ends when no other driver has anything to do, and after maintenance
    has removed everything that was published.
    """

    step: int
    kind: Kind
    steps: int | None = None

    def __str__(self) -> str:
        return f"{self.step}:{self.kind.value}" + ("" if self.steps is None else f":{self.steps}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The size of a world, and what else happens in it, each with its probability per occasion."""

    rows: int
    batch_rows: int
    tasks: int
    retained: int
    inline: bool
    switch: float = 0.0
    """How often two live drivers take turns."""
    task_twice: float = 0.0
    """How often a task is run a second time, as retries and speculation do."""
    lose_commit: float = 0.0
    """How often the checkpoint's newest commit is missing at a start."""
    wrong_checkpoint: float = 0.0
    """How often the checkpoint is replaced at a start: by an older copy, an empty one, or its own logs without the query id."""
    maintenance: float = 0.0
    """How often, per step, maintenance removes something published."""
    behind: float = 0.0
    """How often, per step, a decided batch begins to be published beside the next one; 0: it is published at once."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """One run of the simulator, completely specified."""

    seed: int
    shape: Shape
    faults: tuple[Fault, ...] = ()
    drawn: bool = False
    """Whether shape and faults follow from the seed alone."""

    @property
    def command(self) -> str:
        """The command line that replays this schedule."""
        faults = "" if self.drawn else f" --schedule {','.join(map(str, self.faults)) or 'none'}"
        replay = " --lose-commits" if not self.drawn and self.shape.lose_commit else ""
        behind = " --behind" if not self.drawn and self.shape.behind else ""
        return f"python -m penstock.testing.simulator --seed {self.seed}{faults}{replay}{behind}"


SMALL = Shape(rows=3, batch_rows=2, tasks=1, retained=3, inline=False)
"""The world in which faults are tried one by one and in pairs."""

LONGEST_FAULT_STEP = 110


def draw(seed: int) -> Schedule:
    """Return the random schedule of `seed`: up to three faults in a world of random shape."""
    random = Random(seed)  # noqa: S311 - repeatable, not secret
    rows = random.randint(2, 6)
    chance = random.random()
    shape = Shape(
        rows=rows,
        batch_rows=random.randint(1, 3),
        tasks=random.randint(1, 2),
        retained=random.choice((2, 3, 5, 1000)),
        inline=random.random() < 0.5,
        switch=random.choice((0.0, 0.05, 0.3)),
        task_twice=random.choice((0.0, 0.2)),
        lose_commit=random.choice((0.0, 0.3, 1.0)) if chance < 0.5 else 0.0,
        wrong_checkpoint=0.4 if chance > 0.85 else 0.0,
        maintenance=random.choice((0.0, 0.02)),
    )
    faults = [_draw_fault(random) for _ in range(random.choice((1, 2, 3, 3)))]
    shape = replace(shape, behind=random.choice((0.0, 0.0, 0.05, 0.3)))
    return Schedule(seed, shape, tuple(sorted(faults, key=lambda fault: fault.step)), drawn=True)


def _draw_fault(random: Random) -> Fault:
    kind = random.choice(tuple(Kind))
    step = random.randint(1, LONGEST_FAULT_STEP)
    if kind is Kind.OUTAGE:
        return Fault(step, kind, random.randint(1, 30))
    return Fault(step, kind, random.randint(1, 90) if kind is Kind.STALL and random.random() < 0.7 else None)


def parse_faults(text: str) -> tuple[Fault, ...]:
    """Return the faults of `--schedule`: `step:kind[:steps]`, separated by commas, or `none`. Raises Usage."""
    return () if text == "none" else tuple(_parse_fault(part) for part in text.split(","))


def _parse_fault(text: str) -> Fault:
    step, _, rest = text.partition(":")
    kind, _, steps = rest.partition(":")
    try:
        return Fault(int(step), Kind(kind), int(steps) if steps else None)
    except ValueError:
        kinds = ", ".join(kind.value for kind in Kind)
        raise Usage(f"{text!r} is no fault.", remedy=f"Write step:kind[:steps] with a kind of {kinds}.") from None


class ViolationError(Exception):
    """An invariant does not hold: a bug of the protocol, or of the simulator."""


class KilledError(BaseException):
    """The driver is dead. Whatever its code still does while it unwinds has no effect on any store."""


class SparkStoppedError(Exception):
    """Spark stopped the query: its checkpoint could not be written, or another query wrote there."""


class Stepper(Protocol):
    """The driver on whose behalf an operation happens."""

    def do(self, operation: str, subject: str, act: Callable[[], T]) -> T:
        """Do one step: let other drivers run first, perhaps, then `act`, unless a fault forbids it.

        Raises Retryable (`act` did not happen), OutcomeUnknown (it happened, and its answer is lost) or KilledError.
        """
