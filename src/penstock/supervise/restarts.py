"""Whether a driver that ended is started again, and when: by its exit code, with growing pauses, and not for ever."""

import json
import math
import random
from dataclasses import dataclass, field

from penstock.errors import DependencyMissing

DONE = 0
_FENCED = 4
_TRY_AGAIN = 75
_NEVER = frozenset({2, 3, 4, 5})
"""Exit codes after which the next start would end in the same way: a wrong file, a refusal, a newer run, a difference."""

_NEVER_KINDS = frozenset({DependencyMissing.__name__})
"""Errors with exit code 1 after which the next start would end in the same way: Java or a package is not installed."""

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverError:
    """The error that a driver printed last, as one JSON object on a line."""

    kind: str
    message: str
    remedy: str
    exit_code: int

    @classmethod
    def of_line(cls, line: bytes) -> "DriverError | None":
        """Return the error in a line of a driver's messages, None for any other line."""
        if not line.startswith(b'{"error": '):
            return None
        try:
            error = json.loads(line)["error"]
            found = cls(kind=error["kind"], message=error["message"], remedy=error["remedy"], exit_code=int(error["exit_code"]))
        except (ValueError, KeyError, TypeError):
            return None
        return found if all(isinstance(text, str) for text in (found.kind, found.message, found.remedy)) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a driver ended. `exit_code` is negative where a signal ended it, None where it was killed for the `fault` it had.

    `error`: what it said of that, None if it said nothing.
    """

    exit_code: int | None
    ran_s: float
    fault: str = "hung"
    error: DriverError | None = None

    @property
    def text(self) -> str:
        """How it ended, as a part of a sentence about the driver."""
        if self.exit_code is None:
            return f"{self.fault} and was killed"
        if self.exit_code < 0:
            return f"was killed by signal {-self.exit_code}"
        return f"ended with exit code {self.exit_code}"


@dataclass(slots=True, kw_only=True)
class Restarts:
    """Counts how often one pipeline's driver failed in a row.

    `most_failures`: how many failures in a row give the pipeline up. Exit code 75 is none: a place that does not answer may take
    long to come back. A driver that ran for `healthy_s` begins the row anew. One that ended sooner for want of Java or a package
    (`DependencyMissing`) is not started again. With `standby`, one that a newer run fenced is started again like after 75: it
    waits for its turn, and fences nobody before.
    """

    most_failures: int
    standby: bool = False
    healthy_s: float = 600.0
    chance: random.Random = field(default_factory=random.Random)
    failures: int = 0
    tries: int = 0

    def pause_s(self, ended: Ended) -> float | None:
        """Return the seconds until the next start, None if there is none: the pipeline is done, or is given up.

        The pauses double up to a minute. Each is drawn from its upper half, so that drivers that failed together do not come back
        together.
        """
        waits = {_TRY_AGAIN, _FENCED} if self.standby else {_TRY_AGAIN}
        if ended.exit_code == DONE or ended.exit_code in _NEVER - waits:
            return None
        if ended.ran_s >= self.healthy_s:
            self.failures = self.tries = 0
        elif ended.error is not None and ended.error.kind in _NEVER_KINDS:
            return None
        self.tries += 1
        if ended.exit_code not in waits:
            self.failures += 1
        if self.failures >= self.most_failures:
            return None
        longest = min(_LONGEST_PAUSE_S, math.ldexp(_FIRST_PAUSE_S, self.tries - 1))
        return longest * self.chance.uniform(0.5, 1)
